"""What is worked out once for a type is what Arrow says of each value."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.program.fitting import fit_value

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
around = st.sampled_from([0, 7, 8, 15, 16, 31, 32, 63, 64]).flatmap(
    lambda bits: st.sampled_from([sign * 2**bits + step for sign in (-1, 1) for step in (-1, 0, 1)])
)


@given(st.sampled_from(INTEGERS), around)
def test_a_whole_number_fits_where_arrow_can_hold_it(kind, value):
    try:
        held = pa.array([value], kind).to_pylist()[0]
    except (pa.ArrowException, OverflowError):
        with pytest.raises((pa.ArrowException, OverflowError, ValueError)):
            fit_value(value, kind)
    else:
        assert fit_value(value, kind) == held


def test_a_struct_is_fitted_field_by_field_whatever_order_it_comes_in():
    inner = pa.struct([("n", pa.int64()), ("t", pa.string())])
    kind = pa.struct([("b", pa.float64()), ("in", pa.list_(inner))])
    given_value = {"in": [{"t": "x", "n": np.int8(3)}, None, {"n": 4}], "b": 1}
    expected = {"b": 1.0, "in": [{"n": 3, "t": "x"}, None, {"n": 4, "t": None}]}
    found = fit_value(given_value, kind)
    assert repr(found) == repr(expected)
    with pytest.raises(ValueError, match="no field 'm'"):
        fit_value({"b": 1, "in": [{"m": 1}]}, kind)
