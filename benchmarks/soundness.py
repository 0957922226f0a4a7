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
import dataclasses
import datetime
import io
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


CHUNK = 24


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


@dataclasses.dataclass
class Told:
    """What came of one program, in a word each."""

    title: str
    verdict: str = ""
    unsound: str = ""
    failed: str = ""
    false_reason: str = ""
    held_back: str = ""


def told(trial: Any) -> Told:
    """What a trial means."""
    program = trial.program
    found = Told(f"{program.title} ({trial.verdict})", trial.verdict)
    if trial.is_wrongly_called_safe:
        found.unsound = "it is unsafe by construction"
    if trial.difference:
        # An error of ours behind a start that was allowed is no wrong output.
        if trial.is_refused_late:
            found.failed = trial.difference[-300:]
        else:
            found.unsound = trial.difference[-300:]
    found.failed = found.failed or trial.fault
    known = program.truth == "unsafe" and program.culprits and trial.is_held_back
    if known and not trial.reason_is_true:
        found.false_reason = f"{'; '.join(trial.reasons)} leads to none of {', '.join(program.culprits)}"
    return found


class Tried:
    """Tries some of the programs that were made before this process was."""

    def __init__(self, programs: list[Any], data: list[Any], ways: Any) -> None:
        self.programs, self.data, self.ways = programs, data, ways

    def __call__(self, place: int) -> list[Told]:
        from tests.compiler.fuzzing.trials import tried

        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            some = self.programs[place : place + CHUNK]
            return [told(trial) for trial in tried(some, self.data, self.ways) if trial.verdict != "broken"]


class Stranger:
    """Judges some programs of the stranger's, and runs those that start."""

    def __init__(self, entries: list[Any], ways: int) -> None:
        self.programs, self.ways = entries, ways

    def __call__(self, place: int) -> list[Told]:
        return [self._one(entry) for entry in self.programs[place : place + CHUNK]]

    def _one(self, entry: Any) -> Told:
        from anabranch.errors import ProgramError
        from anabranch.program.graph import Source
        from anabranch.program.model import State
        from anabranch.testing import ParallelRun, run_sequential
        from tests.compiler.fuzzing.trials import outcome

        found = Told(entry.name)
        stream = entry.build(rows_per_epoch=50)
        try:
            plan = stream.plan()
            plan.layout  # noqa: B018 - refuses what cannot run
        except ProgramError as problem:
            found.held_back = f"refused: {problem}"
            return found
        for operator in plan.operators:
            if operator.model.state.value is State.UNKNOWN and not isinstance(operator.node.logic, Source):
                found.held_back = f"{operator.name} runs on one thread: {operator.model.state.reason}"
        expected = outcome(lambda: run_sequential([stream]))
        for channels, seed in ((3, 1), (2, 2))[: self.ways]:
            with tempfile.TemporaryDirectory(prefix="stranger-") as scratch:

                def run(at: str = scratch, channels: int = channels, seed: int = seed) -> Any:
                    parallel = ParallelRun([stream], at, channels=channels, seed=seed, fresh_tasks=True)
                    parallel.run_epochs()
                    return parallel.outputs

                if outcome(run) != expected:
                    found.unsound = "its output differs"
        return found


class Bodies:
    """Runs some random methods, rewritten and as they are."""

    def __init__(self, first: int, count: int) -> None:
        self.programs = range(first, first + count)

    def __call__(self, place: int) -> list[Told]:
        from tests.compiler.test_bodies import compare

        some = self.programs[place : place + CHUNK]
        try:
            with tempfile.TemporaryDirectory(prefix="bodies-") as scratch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compare(Path(scratch), some[0], len(some))
        except AssertionError as difference:
            return [Told(f"bodies from {some[0]}", unsound=str(difference)[-600:])]
        return [Told(f"body {each}") for each in some]


class Count:
    """What came of the programs so far; each part of the work is shared between the cores."""

    def __init__(self) -> None:
        self.all: list[Told] = []

    def add(self, kind: str, work: Any) -> list[Told]:
        """Do a part of the work, and tell what was found."""
        begun = time.perf_counter()
        found: list[Told] = []
        places = range(0, len(work.programs), CHUNK)
        # Forked: what was made before is there, and nothing has run yet that has threads.
        with multiprocessing.get_context("fork").Pool(min(len(places), os.cpu_count() or 1), _share, (work,)) as pool:
            for some in pool.imap(_part, places):
                found += some
                for each in some:
                    for text in (each.unsound, each.failed, each.false_reason, each.held_back):
                        if text:
                            print(f"  {each.title}: {text}", flush=True)
        took = time.perf_counter() - begun
        wrong = sum(bool(each.unsound) for each in found)
        print(f"{kind}: {len(found)} in {took:.0f} s; unsound: {wrong}", flush=True)
        self.all += found
        return found


_work: Any = None


def _share(work: Any) -> None:
    global _work
    _work = work


def _part(place: int) -> list[Told]:
    return _work(place)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks soundness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one way to run each program, fewer bodies")
    parser.add_argument("--mini", action="store_true", help="a few of each, to see that it runs")
    parser.add_argument("--seed", type=int, default=1, help="where the generated programs begin")
    parser.add_argument("--more", type=int, default=1, help="so many times the generated programs and mutants")
    options = parser.parse_args(arguments)

    import cloudpickle

    from anabranch.compiler.layout.analysis import analyse
    from tests.compiler import mutants
    from tests.compiler.corpus import load
    from tests.compiler.fuzzing import sources
    from tests.compiler.fuzzing.trials import WAYS
    from tests.compiler.harness import node_of
    from tests.compiler.stranger.stranger_collection import ALL

    cases, modules = load()
    for module in (*modules, mutants):
        cloudpickle.register_pickle_by_value(module)
    ways, generated, changed, fuzzed = WAYS, 700, 1700, 2_000
    if options.quick:
        ways, generated, changed, fuzzed = WAYS[:1], 500, 1100, 500
    elif options.mini:
        ways, generated, changed, fuzzed = WAYS[:1], 12, 12, 10
    start, size = options.seed * 100_000, options.more
    data = rows(options.seed)

    verdicts = {case.name: analyse(node_of(case)).state.value.value for case in cases}
    safe = [case for case in cases if case.truth == "safe"]
    missed = [case.name for case in safe if verdicts[case.name] == "unknown"]
    print(f"corpus: {len(cases)} operators, {len(safe)} of them safe; missed: {', '.join(missed) or 'none'}")
    corpus, planted, entries = sources.of_corpus(), list(sources.planted()), list(ALL)
    if options.mini:
        corpus, planted, entries = corpus[::20], planted[::50], entries[::16]

    count = Count()
    count.add("corpus", Tried(corpus, data, ways))
    count.add("planted", Tried(planted, data, ways[:1]))
    count.add("generated", Tried(list(sources.from_scratch(range(start, start + generated * size))), data, ways))
    count.add("changed", Tried(list(sources.changed(range(start, start + changed * size))), data, ways[:1]))
    written = count.add("a stranger's", Stranger(entries, len(ways)))
    programs = len(count.all)
    bodies = count.add("bodies", Bodies(start if size > 1 else 0, fuzzed))
    by_verdict = collections.Counter(each.verdict for each in count.all if each.verdict)
    print("verdicts: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(by_verdict.items())))
    return {
        "programs": programs,
        "unsound": sum(bool(each.unsound) for each in count.all),
        "failed": sum(bool(each.failed) for each in count.all),
        "false_reasons": sum(bool(each.false_reason) for each in count.all),
        "found_safe": round(1 - len(missed) / len(safe), 4),
        "needless_refusals": round(sum(bool(each.held_back) for each in written) / len(written), 4),
        "stranger": len(written),
        "bodies_fuzzed": sum(not each.unsound for each in bodies),
    }


if __name__ == "__main__":
    print(main(sys.argv[1:]))
