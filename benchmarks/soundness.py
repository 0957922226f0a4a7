"""Whether the compiler is ever wrong, and how often it holds back what could run in parallel.

Every program runs on the product's own path (`tests/compiler/fuzzing/trials.py`): tasks from freshly unpickled
programs, each task twice, several channels and cuts of epochs; and must give what one thread gives, whatever the
verdict.

- *programs*: the corpus, its mutants with planted state, generated operators, mutants of these and of the corpus, and
  the programs of a stranger.
- *unsound*: programs that gave something else, or that are called safe though they are not by construction. Anything
  but 0 is a fault. *failed* ran into an error of ours behind a start that was allowed; *false_reasons* are refusals of
  generated unsafe operators whose reason does not lead to what makes them unsafe.
- *found_safe*: of the operators of the corpus that a person calls safe, the share judged safe.
- *needless_refusals*: of the programs of a stranger, all of them safe, the share that is refused or has an operator
  that runs on one thread.
- *bodies_fuzzed*: random methods that were rewritten to columns and gave what the methods give, errors included.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import io
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def rows(seed: int, count: int = 26) -> list[tuple[Any, ...]]:
    """Tuples for the operators of the corpus."""
    choice = random.Random(seed)
    return [
        (
            choice.randrange(5),
            choice.choice(["a", "b", "A", "start", "x", ""]),
            round(choice.uniform(-20, 20), 2),
            choice.randrange(5),
            [round(choice.uniform(-3, 3), 1) for _ in range(choice.randrange(4))],
            datetime.date(2024, 1, 1 + choice.randrange(4)),
        )
        for _ in range(count)
    ]


class Count:
    """What came of the programs so far."""

    def __init__(self) -> None:
        self.programs = 0
        self.verdicts: collections.Counter[str] = collections.Counter()
        self.unsound: list[str] = []
        self.failed: list[str] = []
        self.false_reasons: list[str] = []

    def add(self, kind: str, trials: Iterable[Any]) -> None:
        """Try programs, and tell what was found."""
        begun, before = time.perf_counter(), self.programs
        for trial in trials:
            if trial.verdict == "broken":
                continue
            program = trial.program
            self.programs += 1
            self.verdicts[trial.verdict] += 1
            title = f"{program.title} ({trial.verdict})"
            if (trial.is_safe and program.truth == "unsafe") or trial.difference:
                ours = "StateError" in trial.difference or "ProgramError" in trial.difference
                (self.failed if ours and not trial.is_safe else self.unsound).append(title)
                print(f"  {title}: {trial.difference[-300:] or 'judged safe'}")
            if trial.fault:
                self.failed.append(title)
                print(f"  {title}: {trial.fault}")
            if program.truth == "unsafe" and program.culprits and trial.is_held_back and not trial.reason_is_true:
                self.false_reasons.append(title)
                print(f"  {title}: {'; '.join(trial.reasons)} leads to none of {', '.join(program.culprits)}")
        took = time.perf_counter() - begun
        print(
            f"{kind}: {self.programs - before} programs in {took:.0f} s; unsound so far: {len(self.unsound)}",
            flush=True,
        )


def stranger(count: Count, ways: int, limit: int | None) -> tuple[int, list[str]]:
    """How many programs the stranger wrote, and which of them are held back; those that start are run."""
    from anabranch.errors import ProgramError
    from anabranch.program.graph import Source
    from anabranch.program.model import State
    from anabranch.testing import ParallelRun, run_sequential
    from tests.compiler.fuzzing.trials import outcome
    from tests.compiler.stranger.stranger_collection import ALL

    held_back: list[str] = []
    entries = ALL if limit is None else ALL[:limit]
    begun = time.perf_counter()
    for entry in entries:
        count.programs += 1
        stream = entry.build(rows_per_epoch=50)
        try:
            plan = stream.plan()
            plan.layout  # noqa: B018 - refuses what cannot run
        except ProgramError as problem:
            held_back.append(entry.name)
            print(f"  {entry.name} is refused: {problem}")
            continue
        for operator in plan.operators:
            if operator.model.state.value is State.UNKNOWN and not isinstance(operator.node.logic, Source):
                held_back.append(entry.name)
                print(f"  {entry.name} runs {operator.name} on one thread: {operator.model.state.reason}")
                break
        expected = outcome(lambda stream=stream: run_sequential([stream]))
        for channels, seed in ((3, 1), (2, 2))[:ways]:
            with tempfile.TemporaryDirectory(prefix="stranger-") as scratch:

                def run(
                    stream: Any = stream, scratch: str = scratch, channels: int = channels, seed: int = seed
                ) -> Any:
                    parallel = ParallelRun([stream], scratch, channels=channels, seed=seed, fresh_tasks=True)
                    parallel.run_epochs()
                    return parallel.outputs

                if outcome(run) != expected:
                    count.unsound.append(entry.name)
                    print(f"  {entry.name} differs")
    took = time.perf_counter() - begun
    print(f"a stranger's: {len(entries)} programs in {took:.0f} s; held back: {len(held_back)}", flush=True)
    return len(entries), held_back


def bodies(count: int, first: int) -> int:
    """How many random methods do the same rewritten; a difference is an error."""
    from tests.compiler.test_bodies import GROUP, compare

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bodies-") as scratch:
        for at in range(first, first + count, GROUP):
            compare(Path(scratch), at, min(GROUP, first + count - at))
    print(f"bodies: {count} in {time.perf_counter() - begun:.0f} s", flush=True)
    return count


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks soundness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one way to run each program, fewer bodies")
    parser.add_argument("--mini", action="store_true", help="a few of each, to see that it runs")
    parser.add_argument("--seed", type=int, default=1, help="where the generated programs begin")
    parser.add_argument("--more", type=int, default=1, help="so many times the generated programs and mutants")
    options = parser.parse_args(arguments)

    import cloudpickle

    from anabranch.compiler.models.analysis import analyse
    from tests.compiler import mutants
    from tests.compiler.corpus import load
    from tests.compiler.fuzzing import sources
    from tests.compiler.fuzzing.trials import WAYS, tried
    from tests.compiler.harness import node_of

    cases, modules = load()
    for module in (*modules, mutants):
        cloudpickle.register_pickle_by_value(module)
    ways, generated, changed, fuzzed = WAYS, 700, 1700, 2_000
    if options.quick:
        ways, fuzzed = WAYS[:1], 500
    elif options.mini:
        ways, generated, changed, fuzzed = WAYS[:1], 12, 12, 10
    start, size = options.seed * 100_000, options.more
    data = rows(options.seed)

    count = Count()
    verdicts = {case.name: analyse(node_of(case)).state.value.value for case in cases}
    safe = [case for case in cases if case.truth == "safe"]
    missed = [case.name for case in safe if verdicts[case.name] == "unknown"]
    print(f"corpus: {len(cases)} operators, {len(safe)} of them safe; missed: {', '.join(missed) or 'none'}")
    corpus, planted = sources.of_corpus(), sources.planted()
    if options.mini:
        corpus, planted = corpus[::20], [each for each, _ in zip(planted, range(12), strict=False)]
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        count.add("corpus", tried(corpus, data, ways))
        count.add("planted", tried(planted, data, ways[:1]))
        count.add("generated", tried(sources.from_scratch(range(start, start + generated * size)), data, ways))
        count.add("changed", tried(sources.changed(range(start, start + changed * size)), data, ways[:1]))
        written, held_back = stranger(count, len(ways), 10 if options.mini else None)
        fuzzed = bodies(fuzzed, start if options.more > 1 else 0)
    verdicts_told = ", ".join(f"{n} {verdict}" for verdict, n in sorted(count.verdicts.items()))
    print(f"verdicts: {verdicts_told}")
    return {
        "programs": count.programs,
        "unsound": len(count.unsound),
        "failed": len(count.failed),
        "false_reasons": len(count.false_reasons),
        "found_safe": round(1 - len(missed) / len(safe), 4),
        "needless_refusals": round(len(held_back) / written, 4),
        "stranger": written,
        "bodies_fuzzed": fuzzed,
    }


if __name__ == "__main__":
    print(main(sys.argv[1:]))
