"""Random methods, rewritten and as they are: the same tuples, the same state, the same error for the same tuple."""

import importlib.util
import os
import re
import sys

import pytest

import anabranch as ab
from anabranch.compiler.rewriting.inline import inlined
from anabranch.engine.worker.slot_columns import slot_code
from anabranch.errors import OperatorError
from anabranch.testing import ParallelRun, run_sequential
from tests.compiler.bodies import source_of

COLUMNS = "k long, x double, n long, s string"
OUTPUT = "k long, y double, s string"
ROWS = [
    (n % 3, (n - 5) / 4 if n % 7 else float("nan"), [0, 1, 3, 5, -2][n % 5], ["a", "b", "", "é"][n % 4])
    for n in range(24)
]
BODIES = int(os.environ.get("ANABRANCH_BODIES", "500"))
GROUP = 50


def module_of(directory, first, count, returns=False):
    """A module with that many operators, in a file, because the rewriting reads it."""
    path = directory / f"bodies_{first}{returns}.py"
    head = "from contextlib import suppress\n\nimport anabranch as ab\n\n\n"
    path.write_text(head + "".join(source_of(seed, f"Body{seed}", returns) for seed in range(first, first + count)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(run):
    """What comes out, bit by bit; or what the error says: operator, error, lines, tuple."""
    try:
        return [repr(tuple(row)) for row in run()]
    except OperatorError as error:
        return re.sub(r", epoch \d+", "", str(error))


def compare(directory, first, count, returns=False):
    """Run that many methods, rewritten and as they are: a difference is an AssertionError with the source."""
    module = module_of(directory, first, count, returns)
    for seed in range(first, first + count):
        operator = getattr(module, f"Body{seed}")
        stream = ab.from_rows(ROWS, COLUMNS, rows_per_epoch=10).process(operator(), by="k", schema=OUTPUT)
        expected = outcome(lambda stream=stream: run_sequential([stream])[0])

        # Of several channels that fail in an epoch, which one is told is not said.
        channels = 1 if isinstance(expected, str) else 1 + seed % 3

        def parallel(stream=stream, seed=seed, channels=channels):
            run = ParallelRun(stream, str(directory / str(seed)), channels=channels, seed=seed)
            run.run_epochs()
            return run.output

        assert outcome(parallel) == expected, source_of(seed, f"Body{seed}", returns)


# A method that fails leaves its generator behind; what a `finally` of it raises when it is collected is nobody's error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("first", range(0, BODIES, GROUP))
def test_a_rewritten_method_does_what_the_method_does(first, tmp_path):
    compare(tmp_path, first, GROUP)


@pytest.mark.parametrize("first", range(0, BODIES // 4, GROUP))
def test_a_method_that_returns_does_so_too(first, tmp_path):
    compare(tmp_path, first, GROUP, returns=True)


def test_many_of_the_random_methods_are_rewritten(tmp_path):
    module = module_of(tmp_path, 0, GROUP)
    names = ["k", "x", "n", "s"], ["k", "y", "s"]
    rewritten = sum(inlined(getattr(module, f"Body{seed}").process, *names) is not None for seed in range(GROUP))
    assert rewritten > GROUP // 4


def test_many_of_the_random_methods_become_loops_over_slots(tmp_path):
    module = module_of(tmp_path, 0, 2 * GROUP)
    rows = ab.from_rows([], COLUMNS)
    bodies = [getattr(module, f"Body{seed}")() for seed in range(2 * GROUP)]
    codes = [slot_code(rows.process(each, by="k", schema=OUTPUT)._node) for each in bodies]
    assert sum(code is not None for code in codes) > GROUP
    assert sum(code is not None and code.loop is not None for code in codes) > GROUP // 3
    assert sum(code is not None and code.passed is not None for code in codes) > GROUP // 8
    module = module_of(tmp_path, 0, 2 * GROUP, returns=True)
    bodies = [getattr(module, f"Body{seed}")() for seed in range(2 * GROUP)]
    codes = [slot_code(rows.process(each, by="k", schema=OUTPUT)._node) for each in bodies]
    assert sum(code is not None for code in codes) > GROUP // 4
