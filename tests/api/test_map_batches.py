"""`map_batches`: what it gives is what it gives tuple by tuple; what breaks its contract is told."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.testing import run_parallel

SCHEMA = "k long, x double, s string"
OUT = "k long, y double, n long"


def shaped(batch):
    return pa.record_batch(
        {"n": pc.utf8_length(batch["s"]), "k": batch["k"], "y": pc.add(pc.multiply(batch["x"], 2.0), 1.0)}
    )


def shaped_pandas(frame):
    return frame.assign(y=frame.x * 2.0 + 1.0, n=frame.s.str.len())[["n", "k", "y"]]


def repeated(batch):
    """Each row as often as its k says, below 3."""
    rows = [row for row, k in enumerate(batch["k"].to_pylist()) for _ in range((k or 0) % 3)]
    return pa.table({"row": rows, "k": batch["k"].take(pa.array(rows, pa.int64())), "n": [1] * len(rows)})


class Sum:
    """The sum so far, by key."""

    def __init__(self):
        self.sums = {}

    def __call__(self, t):
        self.sums[t.k] = self.sums.get(t.k, 0) + t.n
        return t.k, self.sums[t.k]


texts = st.text(st.characters(codec="utf-8"), max_size=5)
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)), st.one_of(st.none(), st.floats(allow_nan=True)), st.none() | texts
    ),
    max_size=40,
)


@given(rows, st.sampled_from([1, 7, 40]), st.sampled_from(["arrow", "pandas"]))
def test_any_cut_into_batches_gives_the_same(rows, per_epoch, form):
    stream = ab.from_rows(rows, SCHEMA, rows_per_epoch=per_epoch)
    if form == "arrow":
        stream = stream.map_batches(shaped, OUT)
    else:
        stream = stream.map_batches(shaped_pandas, OUT, form="pandas")
    expected = [(k, None if x is None else x * 2.0 + 1.0, None if s is None else len(s)) for k, x, s in rows]
    found = stream.run_sequential()
    assert repr([tuple(row) for row in found]) == repr(expected)
    assert repr(run_parallel(stream, channels=3, seed=1)) == repr(found)


@given(rows, st.sampled_from([1, 7, 40]))
def test_rows_that_say_of_which_tuple_they_are_keep_its_place(rows, per_epoch):
    stream = ab.from_rows(rows, SCHEMA, rows_per_epoch=per_epoch)
    stream = stream.map_batches(repeated, "k long, n long", rows="row").process(Sum(), schema="k long, total long")
    found = stream.run_sequential()
    assert len(found) == sum((k or 0) % 3 for k, _, _ in rows)
    assert run_parallel(stream, channels=3, seed=1) == found


def test_a_function_that_looks_at_other_rows_is_told():
    def least(batch):
        return pa.record_batch({"x": pc.subtract(batch["x"], pc.min(batch["x"]))})

    stream = ab.from_rows([(float(n),) for n in range(9)], "x double").map_batches(least, "x double")
    with pytest.raises(ProgramError, match=r"depends on the others of its batch.*by itself.*0.0"):
        run_parallel(stream, channels=2, seed=0)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda batch: batch.slice(1), "0 rows for a batch of 1"),
        (lambda batch: 5, "gave a int; expected a pyarrow RecordBatch"),
        (lambda batch: pa.record_batch({"z": batch["x"]}), "columns z; expected x"),
        (lambda batch: pa.record_batch({"x": batch["x"], "z": batch["x"]}), "columns z, which the output does not"),
        (lambda batch: pa.record_batch({"x": pa.array(["a"] * len(batch))}), "'x' is string, not int64"),
        (lambda batch: pa.record_batch({"x": pc.divide(batch["x"], 0)}), "divide by zero"),
    ],
)
def test_what_does_not_fit_is_told_for_the_first_tuple(function, said):
    stream = ab.from_rows([(7,), (8,)], "x long").map_batches(function, "x long")
    for run in (stream.run_sequential, lambda: run_parallel(stream, channels=2, seed=0)):
        with pytest.raises(OperatorError, match=said) as problem:
            run()
        assert "x=7" in str(problem.value)


def test_rows_must_not_go_down_nor_leave_the_batch():
    for numbers, said in (([0, 0, 1], "not between 0 and 0"), ([None], "whole number"), ([-1], "not between")):
        stream = ab.from_rows([(7,)], "x long").map_batches(
            lambda batch, numbers=numbers: pa.table({"row": pa.array(numbers, pa.int64()), "x": [1] * len(numbers)}),
            "x long",
            rows="row",
        )
        with pytest.raises(OperatorError, match=said):
            stream.run_sequential()


def test_calls_that_fail_are_skipped_tuple_by_tuple():
    def strict(batch):
        return pa.record_batch({"x": pc.divide(12, batch["x"])})

    stream = ab.from_rows([(1,), (0,), (3,)], "x long").map_batches(strict, "x long", on_error="skip")
    assert stream.run_sequential() == [(12,), (4,)]
    assert run_parallel(stream, channels=2, seed=0) == [(12,), (4,)]


def test_state_is_refused_and_bad_words_are_told():
    seen = []

    def keeps(batch):
        seen.append(batch.num_rows)
        return batch

    stream = ab.from_rows([(1,)], "x long")
    assert ab.from_rows([], SCHEMA).map_batches(shaped, OUT).plan().operator("map_batches").model.is_safe
    plan = stream.map_batches(keeps, "x long").plan()
    assert not plan.operator("map_batches").model.is_safe
    with pytest.raises(ProgramError, match="form='polars'"):
        stream.map_batches(shaped, "x long", form="polars")
    with pytest.raises(ProgramError, match="rows='x'"):
        stream.map_batches(shaped, "x long", rows="x")
    with pytest.raises(SchemaError, match="map_batches at"):
        stream.map_batches(shaped, "x nothing")
