"""The corpus on the product's own path: what `runnable` makes of an operator, run by the production tasks.

Every task gets a program unpickled for it alone, and every task runs twice, as Spark may: what is not kept in state is
lost, what is kept outside of it is seen twice.
"""

from __future__ import annotations

import datetime

import cloudpickle
import pytest

from anabranch.errors import ProgramError
from anabranch.testing import run_sequential
from tests.compiler.corpus import load
from tests.compiler.harness import outcome, product_outcome, program_of, takes_emit

CASES, MODULES = load()
for module in MODULES:
    cloudpickle.register_pickle_by_value(module)

ROWS = [
    (
        n % 3,
        "start" if n % 7 == 0 else "ab"[n % 2],
        n * 1.5 - 6,
        n % 5,
        [float(n), 1.0],
        datetime.date(2024, 1, 1 + n % 3),
    )
    for n in range(30)
]
#: Their author named a key, and what cannot be followed is taken on trust: the runtime refuses with a reason.
TRUSTED = {"TwoNamesForOneList"}
SAFE = [case for case in CASES if case.verdict != "unknown" and case.name not in TRUSTED]


@pytest.mark.parametrize("case", SAFE, ids=lambda case: case.name)
def test_what_is_judged_safe_is_equal_on_the_products_path(case):
    if takes_emit(case.make()):
        pytest.skip("programs cannot use emit")
    try:
        program = program_of(case, ROWS, rows_per_epoch=8)
    except ProgramError as problem:
        pytest.skip(f"cannot be written as a program: {problem}")
    expected = outcome(lambda: run_sequential([program])[0])
    for channels, seed in ((1, 1), (3, 2)):
        assert product_outcome(program, channels, seed) == expected
