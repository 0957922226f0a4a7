"""Programs of one operator, tried: what the compiler says of each, and whether it runs in parallel as on one thread.

All of them run on the product's own path (`compiled`, the production tasks), every task from a program unpickled for it
alone, and twice. To be fast, a run has many operators that read one source; only where it differs from the sequential
run, or fails, each is run by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import linecache
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import anabranch as ab
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout.analysis import analyse
from anabranch.compiler.reading.read_operator import INTERNAL
from anabranch.errors import AnabranchError, OperatorError
from anabranch.program.model import State
from anabranch.testing import ParallelRun, run_sequential
from tests.compiler.corpus import SCHEMA

_serial = itertools.count()


@dataclasses.dataclass(frozen=True)
class Program:
    """One operator, as source text.

    Attributes
    ----------
    text : str
        A module that defines `name`: an operator, or with `makes` what makes one when it is called.
    names : callable
        Gives what the module's code finds beside its own names.
    truth : str
        "safe": it may run in parallel, by key or without state; "unsafe": it may not; "": nobody knows.
    culprits : tuple of str
        Names of what makes it unsafe: a true reason leads to a line with one of them.
    rows, schema, output :
        What it reads, and the columns of what it reads and emits; the corpus' by default.
    """

    title: str
    text: str
    name: str = "Operator"
    makes: bool = True
    mode: str = "process"
    by: tuple[str, ...] = ()
    truth: str = ""
    culprits: tuple[str, ...] = ()
    names: Callable[[], dict[str, Any]] = dataclasses.field(default=dict, repr=False, compare=False)
    rows: tuple[Any, ...] = ()
    schema: str = ""
    output: str = ""

    def loaded(self) -> Any:
        """The operator, from a module of its own that the compiler can read."""
        file = f"<fuzzed {next(_serial)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        space: dict[str, Any] = {**self.names(), "__name__": "fuzzed"}
        exec(compile(self.text, file, "exec", dont_inherit=True), space)
        return space[self.name]() if self.makes else space[self.name]

    def stream(self, source: Any = None, rows_per_epoch: int = 8) -> Any:
        """The operator in a program of its own, as a user would write it."""
        if source is None:
            source = ab.from_rows(list(self.rows), self.schema or str(SCHEMA), rows_per_epoch=rows_per_epoch)
        operator, output = self.loaded(), self.output or self.schema or str(SCHEMA)
        if self.mode == "filter":
            return source.filter(operator)
        if self.mode in ("map", "flat_map"):
            return getattr(source, self.mode)(operator, output)
        more = {"by": self.by} if self.by else {}
        return source.process(operator, schema=output, **more)


@dataclasses.dataclass
class Trial:
    """What came of a program.

    `verdict` is stateless, partitioned or unknown; or refused (before anything starts, with `reasons`), or broken (it
    cannot be a program at all: `reasons` says why).
    """

    program: Program
    verdict: str
    reasons: list[str] = dataclasses.field(default_factory=list)
    #: The lines of its source that the reasons point to.
    lines: list[str] = dataclasses.field(default_factory=list)
    stream: Any = None
    expected: Any = None
    #: What was wrong: empty if nothing.
    difference: str = ""
    fault: str = ""

    @property
    def is_safe(self) -> bool:
        """The compiler claims that it may run in parallel."""
        return self.verdict in ("stateless", "partitioned")

    @property
    def is_wrongly_called_safe(self) -> bool:
        """It is unsafe by construction; unless it does nothing but raise, as a change of its code may make it."""
        return self.is_safe and self.program.truth == "unsafe" and not isinstance(self.expected, str)

    @property
    def is_refused_late(self) -> bool:
        """Not wrong, but refused by the first epoch only: what it keeps turned out to be what cannot be kept."""
        believed = bool(self.program.by)  # where a key is declared, what cannot be followed is watched where it runs
        stopped = re.search("but got raises (StateError|ProgramError)", self.difference)
        return (not self.is_safe or believed) and stopped is not None

    @property
    def is_held_back(self) -> bool:
        """It does not run in parallel."""
        return self.verdict in ("unknown", "refused")

    @property
    def reason_is_true(self) -> bool:
        """One of the reasons leads to what makes the program unsafe."""
        told = "\n".join([*self.reasons, *self.lines])
        return any(re.search(rf"{re.escape(name)}(?!\d)", told) for name in self.program.culprits)


def judged(program: Program, source: Any = None) -> Trial:
    """What the compiler says of a program, and whether it would start."""
    try:
        stream = program.stream(source)
    except (AnabranchError, SyntaxError) as problem:
        return Trial(program, "broken", [f"{type(problem).__name__}: {problem}"])
    try:
        model = analyse(stream._node)
        reasons = [block.reason for block in model.blocks]
        lines = [
            linecache.getline(block.location.file, block.location.line) for block in model.blocks if block.location
        ]
        found = Trial(program, model.state.value.value, reasons, lines, stream)
        if any(INTERNAL in reason for reason in reasons):
            found.fault = f"a fault of the compiler's own: {reasons}"
        compiled([stream._node], False).layout  # noqa: B018 - refuses what cannot run
        if model.state.value is State.PARTITIONED and model.key is not None and model.key.expression:
            return found
    except AnabranchError as problem:
        found = Trial(program, "refused", [str(problem)], [], stream)
    except Exception as problem:
        found = Trial(program, "refused", [str(problem)], [], stream)
        found.fault = f"a raw error: {type(problem).__name__}: {problem}"
    return found


def outcome(run: Any) -> Any:
    """What a run gives, as comparable text; an error by the name of the user's own."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return [[repr(row) for row in each] for each in run()]
    except OperatorError as problem:
        own = re.search(r"\b(\w*(?:Error|Exception|Exit|Interrupt|Iteration))\b", str(problem))
        return f"raises {own[1] if own is not None else 'an error of the operator'}"
    except AnabranchError as problem:
        return f"raises {type(problem).__name__}: {problem}"
    except Exception as problem:
        return f"raises {type(problem).__name__}"


def _on_the_products_path(streams: list[Any], channels: int, seed: int) -> Any:
    def run() -> Any:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            parallel = ParallelRun(streams, scratch, channels=channels, seed=seed, fresh_tasks=True)
            parallel.run_epochs()
            return parallel.outputs

    return outcome(run)


#: How the product runs a batch: channels, a seed for the cuts, rows of an epoch.
Way = tuple[int, int, int]
WAYS: tuple[Way, ...] = ((3, 1, 6), (2, 2, 11))


def tried(
    programs: Iterable[Program], rows: Sequence[Any], ways: Sequence[Way] = WAYS, batch: int = 12
) -> Iterator[Trial]:
    """Judge all programs, and run those that start."""
    for some in _batched(programs, batch):
        for number, (channels, seed, rows_per_epoch) in enumerate(ways):
            source = ab.from_rows(list(rows), str(SCHEMA), rows_per_epoch=rows_per_epoch)
            trials = [judged(each, None if each.rows else source) for each in some]
            _compare(trials, channels, seed)
            if number == 0:
                found = trials
                continue
            for trial, other in zip(found, trials, strict=True):
                trial.difference = trial.difference or other.difference
                trial.fault = trial.fault or other.fault
        yield from found


def check(programs: Iterable[Program], rows: Sequence[Any], ways: Sequence[Way] = WAYS[:1]) -> set[str]:
    """No program is wrong, and none that is unsafe by construction is called safe; the verdicts there were."""
    verdicts = set()
    for trial in tried(programs, rows, ways):
        told = f"{trial.program.title}, {trial.verdict} {trial.reasons}\n{trial.program.text}"
        assert not trial.difference or trial.is_refused_late, f"{trial.difference}\n{told}"
        assert not trial.fault, f"{trial.fault}\n{told}"
        assert not trial.is_wrongly_called_safe, told
        if trial.program.culprits and trial.is_held_back:
            assert trial.reason_is_true, told
        verdicts.add(trial.verdict)
    return verdicts


def _batched(programs: Iterable[Program], size: int) -> Iterator[list[Program]]:
    waiting = iter(programs)
    while some := list(itertools.islice(waiting, size)):
        yield some


def _compare(trials: list[Trial], channels: int, seed: int) -> None:
    """Run what starts, on one thread and on the product's path."""
    together = []
    for trial in trials:
        if trial.verdict in ("refused", "broken"):
            continue
        trial.expected = outcome(lambda trial=trial: run_sequential([trial.stream]))
        if isinstance(trial.expected, str) or trial.program.rows:
            _compare_alone(trial, channels, seed)
        else:
            together.append(trial)
    if not together:
        return
    found = _on_the_products_path([trial.stream for trial in together], channels, seed)
    if found != [trial.expected[0] for trial in together]:
        for trial in together:
            _compare_alone(trial, channels, seed)


def _compare_alone(trial: Trial, channels: int, seed: int) -> None:
    found = _on_the_products_path([trial.stream], channels, seed)
    if found == trial.expected:
        return
    if not trial.is_safe and outcome(lambda: run_sequential([trial.stream])) != trial.expected:
        return  # it differs from itself: by a clock, random numbers, the order of a set
    trial.difference = f"expected {trial.expected}, but got {found}"
