"""How much the compiler finds, if it is ever wrong, and how long it takes.

- *found_safe*: of the operators of the corpus that a person calls safe, the share judged safe.
- *unsound*: operators and mutants that give something else on the product's own path than on one thread, whatever
  the verdict, for generated data. Anything but 0 is a fault.
- *compile_500_s*: compiling a program of 500 different operators, their source file read for the first time.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import linecache
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

TEMPLATES = (
    """
class Operator{n}:
    def __init__(self):
        self.total = defaultdict(float)
        self.seen = {{}}

    def __call__(self, t):
        self.total[t.id] += t.value * {n}
        self.seen[t.id] = self.seen.get(t.id, 0) + 1
        if self.seen[t.id] > {n} % 7:
            yield t.but(value=self.total[t.id] / self.seen[t.id])
""",
    """
def helper{n}(name):
    return name.strip().lower()[:{n}]


def operator{n}(t):
    if t.value > {n} and helper{n}(t.name) != "x":
        yield t.but(name=helper{n}(t.name), value=t.value * 2)
""",
    """
def operator{n}(t):
    items = [x + {n} for x in t.items if x > 0]
    items.sort()
    for item in items:
        yield t.but(value=item)
""",
    """
class Operator{n}:
    limit = {n}

    def __init__(self):
        self.windows = defaultdict(list)

    def __call__(self, t):
        window = self.windows[t.id]
        window.append(t.value)
        if len(window) > self.limit:
            window.pop(0)
        yield t.but(value=sum(window) / len(window), count=len(window))
""",
    """
TABLE{n} = {{"a": {n}, "b": {n} + 1}}


def operator{n}(t):
    match t.name:
        case "a" | "b":
            yield t.but(count=TABLE{n}[t.name])
        case _:
            yield t
""",
)


def program_of(size: int) -> list[Any]:
    """A chain of different operators, in a source file of their own."""
    from anabranch.program.graph import Location, Node, Process, Source
    from tests.compiler.corpus import SCHEMA

    text = "from collections import defaultdict\n" + "".join(
        TEMPLATES[number % len(TEMPLATES)].format(n=number) for number in range(size)
    )
    name = f"<benchmark {time.monotonic_ns()}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"__name__": "benchmark_operators"}
    exec(compile(text, name, "exec", dont_inherit=True), space)
    node = Node(0, "source", "source", Source(None), (), SCHEMA, Location(name, 1))
    for number in range(size):
        operator = space.get(f"operator{number}") or space[f"Operator{number}"]()
        node = Node(
            number + 1,
            "process",
            f"process_{number}",
            Process(operator),
            (node,),
            SCHEMA,
            Location(name, number + 2),
        )
    return [node]


def time_to_compile(size: int, repeats: int) -> tuple[float, float]:
    """The median time to compile a program of this size, in seconds: by the clock, and of the processor."""
    from anabranch.compiler.compile import compile_program

    times, processor_times = [], []
    for _ in range(repeats):
        outputs = program_of(size)
        start, processor_start = time.perf_counter(), time.process_time()
        plan = compile_program(outputs)
        times.append(time.perf_counter() - start)
        processor_times.append(time.process_time() - processor_start)
        blocked = [operator.name for operator in plan.operators if operator.chain is None]
        assert blocked == ["source"], blocked
    return sorted(times)[len(times) // 2], sorted(processor_times)[len(times) // 2]


def random_rows(generator: random.Random, count: int) -> list[tuple[Any, ...]]:
    return [
        (
            generator.randrange(5),
            generator.choice(["a", "b", "A", "start", "x", ""]),
            round(generator.uniform(-20, 20), 2),
            generator.randrange(5),
            [round(generator.uniform(-3, 3), 1) for _ in range(generator.randrange(4))],
            datetime.date(2024, 1, 1 + generator.randrange(4)),
        )
        for _ in range(count)
    ]


def look_for_differences(rounds: int, seed: int, every: int) -> tuple[list[str], int, int]:
    """Operators and mutants that give something else on the product's path; mutants made; mutants judged safe."""
    import cloudpickle

    from tests.compiler import mutants
    from tests.compiler.corpus import load
    from tests.compiler.fuzzing import sources
    from tests.compiler.fuzzing.trials import tried

    for module in (*load()[1], mutants):
        cloudpickle.register_pickle_by_value(module)
    generator = random.Random(seed)
    unsound: list[str] = []
    made = judged_safe = 0

    def way() -> tuple[int, int, int]:
        return generator.randrange(2, 6), generator.randrange(100), generator.randrange(4, 20)

    for _ in range(rounds):
        rows = random_rows(generator, generator.randrange(2, 60))
        for trial in tried(sources.of_corpus()[:: 40 if every > 1000 else 1], rows, (way(),)):
            if trial.difference and not trial.is_refused_late:
                unsound.append(trial.program.title)
    for trial in tried(sources.planted(every, seed), random_rows(generator, 30), (way(),)):
        made += trial.verdict != "broken"
        judged_safe += trial.is_safe
        if trial.difference and not trial.is_refused_late:
            unsound.append(trial.program.title)
    return unsound, made, judged_safe


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks compiler", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer mutants")
    parser.add_argument("--mini", action="store_true", help="ten operators, hardly any mutants, to see that it runs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    size, repeats, rounds, every = 500, 9, 4, 6
    if options.quick:
        repeats, rounds, every = 5, 1, 48
    elif options.mini:
        size, repeats, rounds, every = 10, 1, 1, 10_000

    # First, in a process as a user's is: behind 2,000 mutants the garbage collector has their heap to look at.
    seconds, processor_seconds = time_to_compile(size, repeats)
    print(f"{size} operators compiled in {seconds:.3f} s, {processor_seconds:.3f} s of the processor (medians)")

    from anabranch.compiler.layout.analysis import analyse
    from tests.compiler.corpus import load
    from tests.compiler.harness import node_of

    cases, _ = load()
    verdicts = {case.name: analyse(node_of(case)).state.value.value for case in cases}
    safe = [case for case in cases if case.truth == "safe"]
    missed = [case.name for case in safe if verdicts[case.name] == "unknown"]
    wrong = [case.name for case in cases if case.truth == "unsafe" and verdicts[case.name] != "unknown"]
    print(f"corpus: {len(cases)} operators, {len(safe)} of them safe; missed: {', '.join(missed) or 'none'}")
    with contextlib.redirect_stdout(io.StringIO()):  # some operators of the corpus print
        unsound, made, judged_safe = look_for_differences(rounds, options.seed, every)
    print(f"mutants: {made} made, {judged_safe} judged safe; unsound: {', '.join(wrong + unsound) or 'none'}")
    return {
        "corpus": len(cases),
        "unsound": len(wrong) + len(unsound),
        "found_safe": round(1 - len(missed) / len(safe), 4),
        "compile_500_s": round(seconds, 3),
        "compile_500_processor_s": round(processor_seconds, 3),
        "mutants": made,
    }


if __name__ == "__main__":
    print(main(sys.argv[1:]))
