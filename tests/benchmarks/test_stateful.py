"""The checks of ``python -m benchmarks stateful`` can fail. That its systems agree is checked by its miniature."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from benchmarks._vwap_input import (
    SCHEMA,
    Output,
    check_identical,
    check_last_values,
    check_per_key,
    make_epochs,
    sequential_output,
)

ROWS_OF_EPOCHS = [300, 700, 1000]
KEYS = 50


@pytest.fixture(scope="module")
def epochs() -> list[pa.Table]:
    return make_epochs(ROWS_OF_EPOCHS, KEYS)


def test_the_recomputation_equals_the_sequential_run(epochs: list[pa.Table]) -> None:
    from benchmarks._vwap_systems import OUTPUT, Vwap

    rows = [tuple(row.values()) for row in pa.concat_tables(epochs).to_pylist()]
    sequential = ab.from_rows(rows, SCHEMA).process(Vwap(), by="key", schema=OUTPUT).run_sequential()
    expected = sequential_output(epochs)
    assert [row.key for row in sequential] == np.concatenate([each.key for each in expected]).tolist()
    assert [row.vwap for row in sequential] == np.concatenate([each.vwap for each in expected]).tolist()


def test_the_checks_see_a_swapped_a_lost_and_a_wrong_row(epochs: list[pa.Table]) -> None:
    expected = sequential_output(epochs)
    *before, last = expected
    swapped = last.key.copy(), last.vwap.copy()
    at = int(np.flatnonzero(np.diff(last.key))[0])
    for column in swapped:
        column[[at, at + 1]] = column[[at + 1, at]]
    lost = last.key[1:], last.vwap[1:]
    wrong = last.key, np.append(last.vwap[:-1], last.vwap[-1] + 1e-3)
    for check, planted in [
        (check_identical, swapped),
        (check_identical, wrong),
        (check_per_key, lost),
        (check_per_key, wrong),
        (check_last_values, wrong),
    ]:
        check(expected, expected)
        with pytest.raises(AssertionError, match="epoch 2"):
            check([*before, Output(*planted)], expected)
