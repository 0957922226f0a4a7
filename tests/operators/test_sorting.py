"""Sort and deduplicate against a plain statement of what they mean."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import count, delta, punctuation, time
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.operators.epoch_context import take_anomalies

COLUMNS = "k string, x double, n long"
NAN = float("nan")
keys = st.sampled_from(["a", "b", None])
numbers = st.one_of(st.none(), st.just(NAN), st.integers(0, 9).map(float))
rows = st.lists(st.tuples(keys, numbers, st.integers(0, 99)), max_size=30)


def counted(stream):
    take_anomalies()
    found = [repr(tuple(row)) for row in stream.run_sequential()]
    return found, {what: number for (_, what), number in take_anomalies().items()}


def order(value):
    """Nulls first, NaN last."""
    return (0, 0) if value is None else (2, 0) if value != value else (1, value)


@given(rows, st.integers(1, 6), st.sampled_from(["pass", "drop"]), st.booleans())
def test_a_progressive_sort_lets_the_smallest_go_when_it_holds_too_many(given, size, late, keyed):
    held, gone = collections.defaultdict(list), {}
    expected, counts = [], collections.Counter()
    for row in given:
        key = row[0] if keyed else ()
        counts["null_key"] += keyed and row[0] is None
        if key in gone and order(row[1]) < order(gone[key]):
            counts["late"] += 1
            expected += [row] if late == "pass" else []
            continue
        held[key].append(row)
        if len(held[key]) > size:
            smallest = min(held[key], key=lambda each: order(each[1]))
            held[key].remove(smallest)
            gone[key] = smallest[1]
            expected.append(smallest)
    stream = ab.from_rows(given, COLUMNS).sort("x", window=count(size), key="k" if keyed else None, late=late)
    found, noted = counted(stream)
    assert found == [repr(row) for row in expected]
    assert noted == {what: number for what, number in counts.items() if number}


@given(st.lists(st.integers(0, 50), unique=True), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_stream_that_is_nearly_in_order_comes_out_in_order(values, size, random):
    nearly = sorted(values)
    for at in range(0, len(nearly), size + 1):  # no tuple is more than `size` places away from where it belongs
        part = nearly[at : at + size + 1]
        random.shuffle(part)
        nearly[at : at + size + 1] = part
    stream = ab.from_rows([(value,) for value in nearly], "x long").sort("x", window=count(size))
    found, noted = counted(stream)
    assert found == [repr((value,)) for value in sorted(values)][: max(0, len(values) - size)] and not noted


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 99)), max_size=30), st.integers(0, 6))
def test_a_sort_by_delta_lets_go_what_the_newest_has_left_behind(given, size):
    held, expected, last, late = [], [], None, 0
    newest = -1
    for row in given:
        if last is not None and row < last:
            late += 1
            expected.append(row)
            continue
        newest = max(newest, row[0])
        held = sorted([*held, row])
        for each in [each for each in held if newest - each[0] > size]:
            held.remove(each)
            expected.append(each)
            last = each
    stream = ab.from_rows(given, "at long, n long").sort(["at", "n"], window=delta("at", size))
    found, noted = counted(stream)
    assert found == [repr(row) for row in expected] and noted.get("late", 0) == late


@given(rows, st.booleans(), st.booleans())
def test_punctuations_end_what_is_sorted_together(given, keyed, down):
    expected, held = [], {}
    for row in given:
        held.setdefault(row[0] if keyed else (), []).append(row)
        if row[2] % 7 == 0:
            for window in held.values():
                ordered = sorted(window, key=lambda each: each[2])
                ordered.sort(key=lambda each: order(each[1]), reverse=False)
                if down:  # stable in both directions
                    ranks = sorted({order(each[1]) for each in ordered}, reverse=True)
                    ordered = [each for rank in ranks for each in ordered if order(each[1]) == rank]
                expected += ordered
            held = {}
    stream = ab.from_rows(given, COLUMNS).punctuate(lambda t: t.n % 7 == 0)
    ordered = stream.sort(["x", "n"], window=punctuation(), key="k" if keyed else None, descending=[down, False])
    assert [repr(tuple(row)) for row in ordered.run_sequential()] == [repr(row) for row in expected]


# -- deduplicate ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(keys, st.integers(0, 3)), max_size=30))
def test_the_first_of_each_key_goes_through(given):
    firsts = list(dict.fromkeys(given))
    stream = ab.from_rows(given, "k string, n long")
    assert [tuple(row) for row in stream.deduplicate().run_sequential()] == firsts
    by_key = {}
    for row in given:
        by_key.setdefault(row[0], row)
    assert [tuple(row) for row in stream.deduplicate(by="k").run_sequential()] == list(by_key.values())


@given(rows, st.integers(1, 4))
def test_within_a_count_the_first_of_every_so_many_goes_through(given, size):
    seen, expected = collections.Counter(), []
    for row in given:
        if seen[row[0]] % size == 0:
            expected.append(repr(row))
        seen[row[0]] += 1
    assert counted(ab.from_rows(given, COLUMNS).deduplicate(by="k", within=count(size)))[0] == expected


@given(rows, st.integers(0, 40))
def test_within_a_delta_a_tuple_goes_through_when_the_attribute_has_grown(given, size):
    last, expected, backwards = {}, [], 0
    for row in given:
        backwards += row[2] < last.get(row[0], -1)
        if row[0] not in last or row[2] - last[row[0]] > size:
            last[row[0]] = row[2]
            expected.append(repr(row))
    found, noted = counted(ab.from_rows(given, COLUMNS).deduplicate(by="k", within=delta("n", size)))
    assert found == expected and noted.get("backwards", 0) == backwards


@given(
    st.lists(rows, min_size=1, max_size=4),
    st.lists(st.sampled_from(range(0, 3001, 500)), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_within_a_time_a_tuple_goes_through_when_the_span_is_over(given, steps, seconds):
    clocks = [sum(steps[: at + 1]) for at in range(4)]
    passed, expected = {}, []
    for clock, epoch in zip(clocks, given, strict=False):
        for row in epoch:
            if row[0] not in passed or clock - passed[row[0]] >= seconds * 1000:
                passed[row[0]] = clock
                expected.append(repr(row))
    stream = from_epochs(given, COLUMNS).deduplicate(by="k", within=time(seconds))
    assert [repr(tuple(row)) for row in run_epochs([stream._node], clocks).output] == expected


# -- bad input -----------------------------------------------------------------------------------------------------


def test_null_keys_and_null_attributes_follow_their_policies():
    stream = ab.from_rows([(None, 1), ("a", None), ("a", 2)], "k string, n long")
    found = counted(stream.deduplicate(by="k", within=delta("n", 1, nulls="drop"), null_key="drop"))
    assert found == (["('a', 2)"], {"null_key": 1, "null_attribute": 1})
    with pytest.raises(OperatorError, match="the key column 'k' is null"):
        stream.deduplicate(by="k", null_key="fail").run_sequential()
    with pytest.raises(OperatorError, match="the attribute 'n' is null"):
        stream.sort("n", window=delta("n", 1), key="k").run_sequential()


# -- arguments that mean nothing -----------------------------------------------------------------------------------


def stream():
    return ab.from_rows([], "k string, x double, all array<long>")


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: stream().sort([], window=count(1)), "nothing to sort by"),
        (lambda: stream().sort("nope", window=count(1)), "no column 'nope'; columns: k, x, all"),
        (lambda: stream().sort("x", window=5), r"window=5: expected count\(n\)"),
        (lambda: stream().sort("x", window=count(1), descending="yes"), "descending='yes': expected"),
        (lambda: stream().sort("x", window=count(1), descending=[True, True]), "for each column"),
        (lambda: stream().sort("x", window=count(1), late="keep"), "late='keep': expected"),
        (lambda: stream().sort("x", window=count(1), null_key="no"), "null_key='no'"),
        (lambda: stream().sort("x", window=count(1), key="nope"), "the key 'nope' is not a column"),
        (lambda: stream().sort(["k", "x"], window=delta("x", 1)), "sort by 'x' first, ascending; found 'k'"),
        (lambda: stream().sort("x", window=delta("x", 1), descending=True), "found 'x', descending"),
        (lambda: stream().deduplicate(), "'all' has the type .* which cannot be a key; name the columns"),
        (lambda: stream().deduplicate(by="k", within=punctuation()), r"within=.*expected count\(n\)"),
        (lambda: stream().deduplicate(by="k", within=delta("all", 1)), "expected a number, date or timestamp"),
    ],
)
def test_what_cannot_be_sorted_is_refused_with_operator_and_line(build, complaint):
    with pytest.raises((ProgramError, SchemaError), match=complaint) as caught:
        build()
    assert "test_sorting.py:" in str(caught.value)
