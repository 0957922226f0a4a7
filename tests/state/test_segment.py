"""Segments: a stack of them means what a dict would, merged or not, and damage is found."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.program.calling import key_of
from anabranch.program.hashing import hash_columns
from anabranch.state import lineage
from anabranch.state.lineage import KeyRoute
from anabranch.state.segment import Segment, checksum_of, compacted_segments, write_segment
from anabranch.state.segment_cache import SegmentCache
from anabranch.state.table import Table


class Kept(ab.Operator):
    """Two state fields, of whatever type."""

    value = ab.state(default=None)
    other = ab.state(default=0)

    def process(self, t):
        return t


KEYS = {
    "k long": st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)])),
    "k string": st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "a longer name than eight bytes"])),
    "k double": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])),
    "k date": st.one_of(st.none(), st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 4))),
    "k decimal(6,2)": st.one_of(st.none(), st.sampled_from([decimal.Decimal("1.50"), decimal.Decimal("-2.00")])),
}
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(2**70, 2**70 + 2),
    st.sampled_from([0.5, float("nan"), "a", b"a", (1, "a"), [1, [2]]]),
)


@st.composite
def stacks(draw):
    """(columns of the key, epochs oldest first: rows of key → (value, other), or None where it was removed)."""
    columns = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    one_kind = draw(st.booleans())  # columns of one type are stored otherwise than mixed ones
    states = st.tuples(st.integers() if one_kind else values, values)
    entries = st.tuples(st.tuples(*[KEYS[c] for c in columns]), st.one_of(states, states, st.none()))
    return columns, draw(st.lists(st.lists(entries, max_size=6), min_size=1, max_size=5))


def table_of(columns: list[str], segments: list[Segment]) -> Table:
    schema = ", ".join(column.replace("k ", f"k{at} ") for at, column in enumerate(columns))
    stream = ab.from_rows([], schema)
    names = tuple(stream.columns)
    key = KeyRoute(names, tuple(stream.schema.arrow.types), names)
    return Table(stream.process(Kept(), by=names)._node, key, segments)


def exact(state) -> str:
    return repr(state)


def build(columns, epochs) -> tuple[list[Segment], dict]:
    """The segments, newest first, and the dict they stand for (by the text of the key, which tells all apart)."""
    key_route = table_of(columns, [])._key
    places = tuple(range(len(columns)))
    model: dict[str, tuple] = {}
    segments = []
    for rows in epochs:
        entries = {}
        for row, state in rows:
            entries[key_of(row, places)] = state  # a key once per segment
        for key, state in entries.items():
            model.pop(model_key(key), None)
            if state is not None:
                model[model_key(key)] = state
        dead = np.array([state is None for state in entries.values()], dtype=bool)
        states = [(None, None) if state is None else state for state in entries.values()]
        fields = list(zip(*states, strict=True)) if states else [[], []]
        hashes = key_route.hashes(list(entries)) if entries else np.zeros(0, np.uint64)
        segments.insert(0, Segment(write_segment(hashes, list(entries), ("value", "other"), fields, dead)))
    return segments, model


def model_key(key) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return repr([part + 0.0 if isinstance(part, float) else part for part in parts])  # -0.0 is 0.0


def look_up(columns, segments, epochs) -> dict:
    """Every key that was ever written, looked up together as a batch would."""
    places = tuple(range(len(columns)))
    touched = {key_of(row, places) for rows in epochs for row, _ in rows}
    table = table_of(columns, segments)
    found = table._find(list(touched)) if touched else {}
    return {model_key(key): state for key, state in found.items()}


def agree(found: dict, model: dict) -> bool:
    return {k: exact(v) for k, v in found.items()} == {k: exact(v) for k, v in model.items()}


@settings(max_examples=40)
@given(stacks())
def test_looking_up_in_a_stack_of_segments_is_looking_up_in_a_dict(stack):
    columns, epochs = stack
    segments, model = build(columns, epochs)
    assert agree(look_up(columns, segments, epochs), model)


@settings(max_examples=30)
@given(stack=stacks())
def test_keys_with_one_hash_are_told_apart(stack):
    columns, epochs = stack
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineage, "hash_columns", lambda given: hash_columns(given) % np.uint64(3))
        segments, model = build(columns, epochs)
        assert agree(look_up(columns, segments, epochs), model)


@settings(max_examples=40)
@given(stack=stacks(), data=st.data(), collide=st.booleans())
def test_merging_neighbours_keeps_the_meaning(stack, data, collide):
    columns, epochs = stack
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(lineage, "hash_columns", lambda given: hash_columns(given) % np.uint64(3))
        segments, model = build(columns, epochs)
        first = data.draw(st.integers(0, len(segments) - 1))
        last = data.draw(st.integers(first + 1, len(segments)))
        is_oldest = last == len(segments)
        merged = Segment(compacted_segments(segments[first:last], drop_dead=is_oldest))
        assert agree(look_up(columns, [*segments[:first], merged, *segments[last:]], epochs), model)


@settings(max_examples=40)
@given(stacks())
def test_a_snapshot_holds_each_live_key_once_and_no_dead_one(stack):
    columns, epochs = stack
    segments, model = build(columns, epochs)
    snapshot = Segment(compacted_segments(segments, drop_dead=True))
    assert len(snapshot) == len(model) and not snapshot.has_dead
    assert (np.diff(snapshot.hashes.astype(object)) >= 0).all()
    assert sorted(map(model_key, snapshot.values("key"))) == sorted(model)


def test_dropping_removals_while_something_older_exists_would_bring_keys_back():
    """The comparison above can fail: this is the mistake that `drop_dead` warns of."""
    epochs = [[((1,), (7, 7))], [((1,), None)], [((2,), (8, 8))]]
    segments, model = build(["k long"], epochs)
    wrong = Segment(compacted_segments(segments[:2], drop_dead=True))
    assert not agree(look_up(["k long"], [wrong, segments[2]], epochs), model)


def test_a_merge_of_nothing_is_an_empty_segment():
    segments, _ = build(["k long"], [[], []])
    merged = Segment(compacted_segments(segments, drop_dead=True))
    assert len(merged) == 0 and merged.fields == ("value", "other")


def test_values_keep_their_exact_types_when_a_column_changes_its_type_between_epochs():
    epochs = [[((1,), (1, 1))], [((2,), (1.0, True))], [((3,), ("a", None))]]
    segments, model = build(["k long"], epochs)
    merged = Segment(compacted_segments(segments, drop_dead=True))
    assert agree(look_up(["k long"], [merged], epochs), model)


# -- damage ------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    """A segment in a file and the checksum that the manifest has of it."""
    data = write_segment(hash_columns([pa.array([1, 2, 3])]), [1, 2, 3], ("total",), [[0.5, 1.5, 2.5]])
    path = tmp_path / "one.segment"
    path.write_bytes(data)
    return path, checksum_of(data)


def test_a_whole_file_is_read(written):
    path, checksum = written
    assert sorted(Segment(str(path), checksum).values("field.total")) == [0.5, 1.5, 2.5]


def test_any_flipped_bit_is_found(written):
    path, checksum = written
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(CheckpointError, match=r"one\.segment is damaged"):
            Segment(str(path), checksum)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_truncated_file_is_found(written, kept, with_checksum):
    path, checksum = written
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(CheckpointError, match=r"one\.segment is damaged"):
        Segment(str(path), checksum if with_checksum else None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"gone\.segment is missing"):
        Segment(str(tmp_path / "gone.segment"), 0)


def test_an_arrow_file_that_is_no_segment_is_refused(tmp_path):
    path = tmp_path / "other.segment"
    table = pa.table({"hash": [1]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CheckpointError, match="has the format None; this version reads 1"):
        Segment(str(path))


def test_the_cache_keeps_segments_open_and_forgets_the_least_used(tmp_path):
    data = write_segment(np.zeros(1, np.uint64), [1], (), [])
    for name in "abc":
        (tmp_path / name).write_bytes(data)
    cache = SegmentCache(limit=2)
    checksum = checksum_of(data)
    a = cache.get(str(tmp_path / "a"), checksum)
    assert cache.get(str(tmp_path / "a"), checksum) is a
    cache.get(str(tmp_path / "b"), checksum)
    cache.get(str(tmp_path / "a"), checksum)
    cache.get(str(tmp_path / "c"), checksum)  # b goes
    assert cache.get(str(tmp_path / "a"), checksum) is a


# -- the table ---------------------------------------------------------------------------------------------


def test_only_what_an_epoch_changed_is_in_its_segment():
    segments, _ = build(["k long"], [[((1,), (10, 0)), ((2,), (20, 0))]])
    table = table_of(["k long"], segments)
    live = table.load({1, 2, 3})
    live[2].value = 21
    changes = table.changes()
    assert changes is not None
    assert Segment(changes[0]).values("key") == [2]


def test_an_epoch_that_changes_nothing_writes_nothing():
    segments, _ = build(["k long"], [[((1,), (10, 0))]])
    table = table_of(["k long"], segments)
    table.load({1, 2})
    assert table.changes() is None


def test_state_that_cannot_be_kept_is_refused_with_the_name_of_its_operator():
    table = table_of(["k long"], [])
    table.load({1})[1].value = object()
    with pytest.raises(ab.errors.StateError, match=r"operator Kept \(.*test_segment\.py:\d+\).*cannot keep a builtins"):
        table.changes()
