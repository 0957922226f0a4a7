"""The corpus on the product's own path (`product_path`): what `runnable` makes of an operator, run by production tasks.

Whatever the verdict: what is judged safe is equal; what is not is equal as well, or refused, or stopped with a reason.
"""

from __future__ import annotations

import datetime

import cloudpickle
import pytest

from anabranch.errors import ProgramError
from tests.compiler.corpus import load
from tests.compiler.harness import program_of, takes_emit
from tests.compiler.product_path import compare

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
#: Two sequential runs differ: clocks, chance, addresses, and names that only code in a text holds.
UNSTEADY = {"reads_the_clock", "reads_now", "draws", "makes_identifier", "uses_address", "through_eval"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_operator_is_silently_different_on_the_products_path(case):
    if takes_emit(case.make()):
        pytest.skip("programs cannot use emit")
    try:
        program = program_of(case, ROWS, rows_per_epoch=8)
    except ProgramError as problem:
        pytest.skip(f"cannot be written as a program: {problem}")
    found = compare(program)
    if case.verdict != "unknown":
        assert found.verdict == "equal", found.difference
    elif case.name not in UNSTEADY:
        assert found.verdict in ("equal", "refused", "stopped"), found.difference
