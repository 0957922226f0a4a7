"""Packets: routing, merging, and the positions that make one order of many pieces."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.worker.packets import (
    Positions,
    data_coordinate,
    merge,
    number_coordinate,
    pack,
    piece_of,
    route,
    text_coordinate,
    unpack,
)
from anabranch.engine.worker.splitters import _pieces
from anabranch.engine.worker.trails import decoded, emission_index, encoded
from anabranch.errors import OrderError

COLUMNS = pa.schema([("x", pa.string())])
SCHEMA = pa.schema([("n", pa.int64()), *COLUMNS])
letters = st.text(st.sampled_from("\0\x01ab\xffé🜚"), max_size=5)


# -- places ------------------------------------------------------------------------------------------------


@given(letters, letters, st.binary(max_size=4), st.binary(max_size=4))
def test_places_of_texts_sort_as_the_texts_do_whatever_follows(one, other, tail, other_tail):
    left, right = text_coordinate(one) + tail, text_coordinate(other) + other_tail
    if one != other:
        assert (left < right) == (one.encode() < other.encode())
    else:
        assert (left < right) == (tail < other_tail)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_places_of_numbers_sort_as_the_numbers_do(one, other):
    assert (number_coordinate(one) < number_coordinate(other)) == (one < other)
    assert len(number_coordinate(one)) == 8


def test_chunks_sort_in_their_order():
    pieces = [text_coordinate("a"), text_coordinate("a\0"), text_coordinate("b")]
    places = [data_coordinate(piece, row) for piece in pieces for row in (0, 5, 300)]
    assert sorted([*places[4:], *places[:4]]) == places


@given(st.binary(max_size=20), st.integers(0, 2**40))
def test_a_place_knows_its_piece(piece, row):
    assert piece_of(data_coordinate(piece, row)) == piece


# -- positions ---------------------------------------------------------------------------------------------


@given(st.dictionaries(st.binary(max_size=3), st.integers(0, 9)), st.randoms(use_true_random=False))
def test_every_row_has_one_position_whichever_splitter_told_first(counts, chance):
    pieces = list(counts.items())
    chance.shuffle(pieces)
    positions = Positions()
    for at in range(0, len(pieces), 2):
        positions.add(pieces[at : at + 2])
    numbers = [positions.base(piece) + row for piece in sorted(counts) for row in range(counts[piece])]
    assert numbers == list(range(sum(counts.values())))


def test_a_piece_that_two_splitters_read_is_noticed():
    positions = Positions()
    positions.add([(b"a", 1)])
    with pytest.raises(AssertionError, match="read twice"):
        positions.add([(b"a", 1)])


def test_a_header_after_data_is_noticed():
    positions = Positions()
    positions.add([(b"a", 1)])
    positions.base(b"a")
    with pytest.raises(AssertionError, match="not sorted"):
        positions.add([(b"b", 1)])


# -- routing and merging -----------------------------------------------------------------------------------


def test_a_batch_comes_back_from_its_packet_with_trails_and_without():
    columns = [pa.array([3, 4]), pa.array(["a", None])]
    for trails in (None, [np.array([7, 9])], [np.array([7, 7]), np.array([0, 1])]):
        packet = pack(columns, SCHEMA, trails)
        assert unpack(packet, SCHEMA).to_pydict() == {"n": [3, 4], "x": ["a", None]}
        if trails:
            found = decoded(memoryview(packet), len(trails))
            assert [digit.tolist() for digit in found] == [t.tolist() for t in trails]


def routed(values, channels, count):
    trails = [np.array(values, dtype=np.int64)]
    columns = [pa.array([str(value) for value in values], pa.string())]
    packets = route(columns, COLUMNS, np.array(channels, np.int32), count, trails)
    return [
        (c, decoded(memoryview(packet), 1), pa.Table.from_batches([unpack(packet, COLUMNS)])) for c, packet in packets
    ]


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 2, 3, 8, 256, 257, 4096]))
def test_routing_sends_each_row_to_its_channel_in_order_and_merging_undoes_it(data, count):
    size = data.draw(st.integers(0, 30))
    # Rising, with repeats: rows that one tuple gave rise to share its number and its channel.
    steps = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    values = np.cumsum(steps).tolist()
    owner = {value: data.draw(st.integers(0, count - 1)) for value in values}
    parts = routed(values, [owner[value] for value in values], count)
    for channel, trails, rows in parts:
        assert trails[0].tolist() == [value for value in values if owner[value] == channel]
        assert rows.column(0).to_pylist() == [str(value) for value in values if owner[value] == channel]
    assert [channel for channel, _, _ in parts] == sorted(set(owner.values()))
    merged = merge([(trails, rows) for _, trails, rows in parts], COLUMNS)
    assert merged.column(0).to_pylist() == list(map(str, values))


def part(rows: list[tuple[int, str]]) -> tuple[list[np.ndarray], pa.Table]:
    return [np.array([n for n, _ in rows], dtype=np.int64)], pa.table([pa.array([x for _, x in rows])], schema=COLUMNS)


def test_rows_of_one_position_keep_the_order_they_were_emitted_in():
    merged = merge([part([(1, "b1"), (1, "b2"), (1, "b3")]), part([(0, "a1"), (0, "a2"), (2, "c")])], COLUMNS)
    assert merged.column(0).to_pylist() == ["a1", "a2", "b1", "b2", "b3", "c"]


def test_a_repeat_is_not_taken_for_a_row_that_is_missing():
    """As many rows as positions, but one twice and one not at all."""
    merged = merge([part([(0, "a"), (0, "b")]), part([(2, "c")])], COLUMNS)
    assert merged.column(0).to_pylist() == ["a", "b", "c"]


def test_parts_that_stand_in_order_are_not_copied():
    parts = [part([(0, "a"), (1, "b")]), part([(2, "c")])]
    merged = merge(parts, COLUMNS)
    assert merged.column(0).to_pylist() == ["a", "b", "c"]
    kept = [chunk.buffers()[2].address for chunk in merged.column(0).chunks]
    assert kept == [rows.column(0).chunk(0).buffers()[2].address for _, rows in parts]


def test_merging_nothing_gives_no_rows_and_the_columns():
    assert merge([], COLUMNS).schema == COLUMNS
    assert merge([part([])], COLUMNS).num_rows == 0


def test_the_emission_index_counts_within_each_tuple():
    assert emission_index(np.array([4, 4, 5, 9, 9, 9])).tolist() == [0, 1, 0, 0, 1, 2]


# -- trails as bytes ---------------------------------------------------------------------------------------

numbers = st.one_of(st.integers(-3, 3), st.integers(0, 2**17), st.integers(-(2**63), 2**63 - 1))
starts = st.integers(-(2**63), 2**63 - 1)


@st.composite
def digits(draw, count):
    """Numbers as they come: anything, near to each other, or rising by steps of any size from anywhere."""
    if draw(st.booleans()):
        return np.array(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=np.int64)
    high = draw(st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**40]))
    steps = draw(st.lists(st.sampled_from([0, 1, high]), min_size=count, max_size=count))
    return np.cumsum(np.array(steps, dtype=np.int64)) + draw(starts)  # may overflow, and must come back all the same


@settings(max_examples=300)
@given(st.data(), st.integers(0, 12), st.integers(1, 3), st.integers(0, 2**40), st.binary(max_size=9))
def test_trails_come_back_from_their_bytes_whatever_stands_before_them(data, count, width, base, before):
    trails = [data.draw(digits(count)) for _ in range(width)]
    found = decoded(memoryview(before + encoded(trails)), width, base)
    assert [digit.dtype for digit in found] == [np.dtype(np.int64)] * width
    assert found[0].tolist() == (trails[0] + base).tolist()
    assert [digit.tolist() for digit in found[1:]] == [digit.tolist() for digit in trails[1:]]


@pytest.mark.parametrize(
    ("case", "trails", "per_tuple"),
    [
        ("passed on", [np.arange(5_000, 15_000)], 0),
        ("one of three channels", [np.flatnonzero(np.arange(30_000) * 7 % 11 < 4)], 1),
        ("one of 2,000 channels", [np.arange(10_000) * 2_000 + np.arange(10_000) % 7], 2),
        ("two for each", [np.repeat(np.arange(5_000) * 3, 2), np.tile([0, 1], 5_000)], 2),
    ],
)
def test_a_tuple_costs_a_byte_or_none_per_slot(case, trails, per_tuple):
    assert len(encoded(trails)) <= per_tuple * len(trails[0]) + 64


# -- pieces of a source ------------------------------------------------------------------------------------


TAP = ab.from_rows([], "x long", name="tap")._node


def pieces(order, columns):
    """The pieces of a batch, in partition 0, whose order these columns tell."""
    return list(_pieces(TAP, order, columns, len(columns[0]), 0))


def kafka(rows) -> list[pa.Array]:
    topics, partitions, offsets = zip(*rows, strict=True)
    return [pa.array(topics), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]


def test_kafka_pieces_are_ordered_by_topic_partition_and_offset():
    rows = [("b", 0, 5), ("b", 0, 6), ("b", 1, 0), ("a", 10, 7), ("a", 2, 300), ("a", 2, 301), ("b", 0, 4)]
    found = pieces("kafka", kafka(rows))
    assert [(start, stop) for _, start, stop in found] == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]
    in_order = [rows[start] for _, start, _ in sorted(found)]
    assert in_order == [("a", 2, 300), ("a", 10, 7), ("b", 0, 4), ("b", 0, 5), ("b", 1, 0)]


def test_a_kafka_partition_that_comes_in_several_batches_gives_several_pieces_in_order():
    first = pieces("kafka", kafka([("a", 0, 98), ("a", 0, 99)]))
    second = pieces("kafka", kafka([("a", 0, 100)]))
    assert first[0][0] < second[0][0]


def files(rows) -> list[pa.Array]:
    times, paths, blocks = zip(*rows, strict=True)
    return [pa.array(times, pa.int64()), pa.array(paths), pa.array(blocks, pa.int64())]


def test_file_pieces_are_ordered_by_time_path_and_block():
    rows = [(2, "a", 0), (1, "b", 900), (1, "b", 0), (1, "a", 5), (1, "ab", 0)]
    found = pieces("files", files(rows))
    in_order = [rows[start] for _, start, _ in sorted(found)]
    assert in_order == [(1, "a", 5), (1, "ab", 0), (1, "b", 0), (1, "b", 900), (2, "a", 0)]


def test_rows_that_lost_their_file_are_refused_with_the_way_out():
    with pytest.raises(OrderError, match=r"source tap .*shuffled or joined.*order_by"):
        pieces("files", files([(1, "", -1)]))


def test_an_empty_batch_has_no_pieces():
    assert pieces("files", [each.slice(0, 0) for each in files([(1, "a", 0)])]) == []
