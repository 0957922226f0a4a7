"""The hash of keys: pinned for ever, because it is part of the checkpoint's format."""

import datetime
import decimal
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import SchemaError
from anabranch.partitioning.placing.construct import evened
from anabranch.program.hashing import GROUP_COUNT, hash_columns, is_hashable, key_groups

NAN, INFINITY = float("nan"), float("inf")
# A small alphabet with characters of one to four bytes: text over all of Unicode takes seconds to set up.
letters = st.sampled_from("ab\0é€🜚")
D = decimal.Decimal

GOLDEN = [
    (pa.int64(), 0, 0xB55A8FA067537A73),
    (pa.int64(), 1, 0xC58214B9873F896B),
    (pa.int64(), -1, 0x509252F3A8113DFC),
    (pa.int64(), 2**63 - 1, 0x31948AC45F4236D2),
    (pa.int64(), -(2**63), 0xF9A6679BF0A04BC5),
    (pa.float64(), 0.0, 0xB55A8FA067537A73),
    (pa.float64(), -0.0, 0xB55A8FA067537A73),
    (pa.float64(), 1.5, 0x1EABB82FCA072197),
    (pa.float64(), NAN, 0xA74735FB1F73C49C),
    (pa.float64(), INFINITY, 0xC5F3D5BBFDF0065A),
    (pa.bool_(), False, 0xB55A8FA067537A73),
    (pa.bool_(), True, 0xC58214B9873F896B),
    (pa.date32(), datetime.date(2024, 2, 29), 0x1D35D8C630BCDD86),
    (pa.timestamp("us"), datetime.datetime(2024, 2, 29, 12), 0xA38978394C77679D),
    (pa.timestamp("us", tz="UTC"), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), 0xA38978394C77679D),
    (pa.string(), "", 0xB55A8FA067537A73),
    (pa.string(), "a", 0xD7043784D6A4ACC7),
    (pa.string(), "1234567", 0x34759C98868462F5),
    (pa.string(), "12345678", 0x26F01BED0459D0A0),
    (pa.string(), "123456789", 0x5EC823DFAD73A9BC),
    (pa.string(), "é", 0xC54111DDD694BBD6),
    (pa.string(), "a" * 16, 0xA17B1B09DE5DC0A4),
    (pa.string(), "a" * 17, 0xC9B531887673038E),
    (pa.string(), "a" * 100, 0xD95D6DEA7503F628),
    (pa.string(), "\0", 0x01D08CD14EBBD6D5),
    (pa.string(), "\0\0", 0xDD7AC723B5BB8DA1),
    (pa.binary(), b"\xff\x00", 0xBC5CAF5E7809A1AB),
    (pa.decimal128(10, 2), D("1.50"), 0x922C3C8433E4425F),
    (pa.decimal128(10, 2), D("-1.50"), 0x95B39662FE3AA5F4),
    (pa.decimal128(10, 2), D("0"), 0),
    (pa.string(), None, 0x9E3779B97F4A7C15),
    (pa.int64(), None, 0x9E3779B97F4A7C15),
    (pa.decimal128(10, 2), None, 0x9E3779B97F4A7C15),
]


def hashes(values, kind) -> list[int]:
    return hash_columns([pa.array(values, kind)]).tolist()


@pytest.mark.parametrize(("kind", "value", "expected"), GOLDEN, ids=lambda v: repr(v)[:24])
def test_the_hash_of_a_value_never_changes(kind, value, expected):
    assert hashes([value], kind) == [expected]


def test_the_hash_of_a_composite_key_never_changes():
    columns = [pa.array(["a", "a"]), pa.array([1, None], pa.int64())]
    assert hash_columns(columns).tolist() == [0x5D84A62E2B238299, 0x3231F35095604BB8]


# -- the same hash written down without numpy, as docs/checkpoint.md describes it -------------------------

_64 = 2**64 - 1
_LENGTH, _COLUMN = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F


def mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _64
    return word ^ (word >> 31)


def word_hash(word: int) -> int:
    return mixed((word + _LENGTH) & _64)


def bytes_hash(data: bytes) -> int:
    result = mixed(((len(data) + 1) * _LENGTH) & _64)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        result = mixed(((result ^ word) * _COLUMN + _LENGTH) & _64)
    return result


@settings(max_examples=40)
@given(st.lists(st.one_of(st.none(), st.text(letters, max_size=40)), min_size=1, max_size=30))
def test_strings_of_every_length_hash_as_the_description_says(values):
    expected = [0x9E3779B97F4A7C15 if value is None else bytes_hash(value.encode()) for value in values]
    assert hashes(values, pa.string()) == expected


@settings(max_examples=40)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_hash_as_the_description_says(values):
    assert hashes(values, pa.int64()) == [word_hash(value & _64) for value in values]


@settings(max_examples=40)
@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_floats_hash_by_their_bits(values):
    bits = [struct.unpack("<Q", struct.pack("<d", value + 0.0))[0] for value in values]
    assert hashes(values, pa.float64()) == [word_hash(word) for word in bits]


@settings(max_examples=40)
@given(st.lists(st.integers(-(10**20), 10**20), min_size=1))
def test_decimals_hash_by_both_words_of_their_unscaled_value(values):
    low_high = [((value & _64), (value >> 64) & _64) for value in values]
    expected = [mixed((mixed(low) * _COLUMN + high) & _64) for low, high in low_high]
    assert hashes([D(value) for value in values], pa.decimal128(38, 0)) == expected


# -- what must be one key ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.integers(-128, 127), min_size=1))
def test_equal_integers_of_any_width_have_one_hash(values):
    for kind in (pa.int8(), pa.int16(), pa.int32()):
        assert hashes(values, kind) == hashes(values, pa.int64())


def test_a_float_and_the_double_it_equals_have_one_hash():
    assert hashes([0.5, -2.25, NAN, None], pa.float32()) == hashes([0.5, -2.25, NAN, None], pa.float64())


def test_all_nans_have_one_hash():
    odd = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert len(set(hash_columns([pa.array(odd)]).tolist())) == 1


def test_the_columns_of_a_key_are_not_interchangeable():
    one, other = pa.array([1]), pa.array([2])
    assert hash_columns([one, other]).tolist() != hash_columns([other, one]).tolist()


# -- how the column came about does not matter -----------------------------------------------------------

kinds = st.sampled_from(
    [
        (pa.string(), st.text(letters, max_size=20)),
        (pa.binary(), st.binary(max_size=20)),
        (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.float64(), st.floats()),
        (pa.bool_(), st.booleans()),
        (pa.decimal128(20, 3), st.integers(-(10**9), 10**9).map(lambda n: D(n) / 1000)),
        (pa.date32(), st.dates()),
    ]
)


@settings(max_examples=60)
@given(st.data())
def test_the_hash_of_a_slice_is_the_slice_of_the_hash(data):
    kind, values = data.draw(kinds)
    array = pa.array(data.draw(st.lists(st.one_of(st.none(), values), max_size=20)), kind)
    start = data.draw(st.integers(0, len(array)))
    length = data.draw(st.integers(0, len(array) - start))
    expected = hash_columns([array])[start : start + length].tolist()
    assert hash_columns([array.slice(start, length)]).tolist() == expected


SLICED = [
    pa.array(["a", "bb", None, "ccc", "a name of several words", ""]),
    pa.array([b"a", b"bb", None, b"ccc", b"d" * 20, b""]),
    pa.array([1, 2, None, 3, 4, 5]),
    pa.array([1.5, 2.5, None, float("nan"), 0.0, 9.0]),
    pa.array([True, False, None, True, True, False]),
    pa.array([D(1), D(2), None, D(3), D(4), D(5)], pa.decimal128(20, 3)),
    pa.array([datetime.date(2024, 1, day) for day in range(1, 7)]),
]


@pytest.mark.parametrize("array", SLICED, ids=lambda array: str(array.type))
def test_every_slice_of_a_column_of_each_type_hashes_as_part_of_the_whole(array):
    whole = hash_columns([array]).tolist()
    for start in range(len(array)):
        for stop in range(start, len(array) + 1):
            assert hash_columns([array.slice(start, stop - start)]).tolist() == whole[start:stop]


def test_chunks_are_one_column():
    chunked = pa.chunked_array([["a", None], [], ["b"]], pa.string())
    assert hash_columns([chunked]).tolist() == hashes(["a", None, "b"], pa.string())


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64(), pa.float64(), pa.bool_(), pa.decimal128(9, 2)])
def test_no_rows_and_only_nulls_are_columns_too(kind):
    assert hashes([], kind) == []
    assert hashes([None, None], kind) == [0x9E3779B97F4A7C15] * 2


# -- what it is good for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [pa.array(range(40_960)), pa.array([f"user-{n}" for n in range(40_960)]), pa.array([n / 7 for n in range(40_960)])],
    ids=["consecutive integers", "numbered names", "fractions"],
)
def test_keys_spread_over_groups_and_channels(array):
    hashed = hash_columns([array])
    assert len(np.unique(hashed)) == len(array)
    sizes = np.bincount(key_groups(hashed), minlength=GROUP_COUNT)  # 10 on average
    assert sizes.max() < 40 and (sizes == 0).sum() < 10
    for channels in (2, 3, 7, 16):
        loads = np.bincount(evened(channels).route(hashed), minlength=channels)
        assert loads.max() < 1.1 * len(array) / channels


def test_a_key_group_is_a_range_of_hashes():
    edges = np.array([0, 2**52 - 1, 2**52, 2**64 - 1], dtype=np.uint64)
    assert key_groups(edges).tolist() == [0, 0, 1, GROUP_COUNT - 1]


def test_every_hash_has_a_channel_below_the_number_of_channels():
    routed = evened(5).route(hash_columns([pa.array(range(1000))]))
    assert set(routed.tolist()) == {0, 1, 2, 3, 4}


def test_nested_columns_are_no_keys():
    assert not is_hashable(pa.list_(pa.int64()))
    with pytest.raises(SchemaError, match=r"list.*cannot be"):
        hash_columns([pa.array([[1]])])


def test_a_key_has_at_least_one_column():
    with pytest.raises(ValueError, match="at least one column"):
        hash_columns([])
