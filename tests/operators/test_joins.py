"""Streams that meet, against a plain statement of what it means; and streams that part."""

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, count, delta, event_time, tumbling
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.operators.epoch_context import take_anomalies

LEFT, RIGHT = "k string, at long, x long", "id string, at long, y long"
keys = st.sampled_from(["a", "a", "b", None])
sides = st.lists(st.tuples(keys, st.integers(0, 12), st.integers(0, 99)), max_size=12)
epochs = st.lists(st.tuples(sides, sides), min_size=1, max_size=3)


def taken():
    return {what: number for (_, what), number in take_anomalies().items()}


def meet(given, build, columns=(LEFT, RIGHT)):
    """Run a program over two sources; what it gave and what was counted."""
    left = from_epochs([each[0] for each in given], columns[0], name="left")
    right = from_epochs([each[1] for each in given], columns[1], name="right")
    take_anomalies()
    run = run_epochs([build(left, right)._node])
    return [tuple(row) for row in run.output], taken()


def arrivals(given):
    """The tuples of both sides in the order they come."""
    return [(side, row) for epoch in given for side in (0, 1) for row in epoch[side]]


# -- join ----------------------------------------------------------------------------------------------------------


class Windows:
    """A window join, said plainly: every pair of tuples, by what was there when the later of them came."""

    def __init__(self, given, holds, how):
        self.output, self.counts = [], collections.Counter()
        self.how = how
        held = {0: [], 1: []}
        for side, row in arrivals(given):
            if row[0] is None:
                self.counts["null_key"] += 1
                self.pad(side, row)
                continue
            mine = [row, False]
            verdict = holds(self, held, side, row)
            if verdict is False:
                continue
            for other in list(held[1 - side]):
                if other[0][0] == row[0] and verdict(other[0]):
                    mine[1] = other[1] = True
                    self.output.append(self.pair(*((row, other[0]) if side == 0 else (other[0], row))))
            held[side].append(mine)
            self.after(held, side, row)

    def pair(self, left, right):
        key = left[0] if left else right[0]
        return (key, *(left[1:] if left else (None, None)), *(right[1:] if right else (None, None)))

    def pad(self, side, row):
        if self.how == "outer" or self.how == ("left", "right")[side]:
            self.output.append(self.pair(*((row, None) if side == 0 else (None, row))))

    def drop(self, held, side, gone):
        for each in [each for each in held[side] if gone(each[0])]:
            if not each[1]:
                self.pad(side, each[0])
        held[side][:] = [each for each in held[side] if not gone(each[0])]


hows = st.sampled_from(["inner", "left", "right", "outer"])


def renamed(right):
    return right.map(lambda t: (t.id, t.at, t.y), schema="id string, then long, y long")


@settings(max_examples=150)
@given(epochs, st.integers(1, 3), st.integers(1, 3), hows)
def test_a_count_join_meets_the_last_tuples_of_the_other_side(given, here, there, how):
    def holds(join, held, side, row):
        def after(held, side, row):
            mine = [each for each in held[side] if each[0][0] == row[0]]
            if len(mine) > (here, there)[side]:
                oldest = mine[0]
                held[side].remove(oldest)
                if not oldest[1]:
                    join.pad(side, oldest[0])

        join.after = after
        return lambda other: True

    expected = Windows(given, holds, how)
    found, counts = meet(
        given, lambda one, two: one.join(renamed(two), by=("k", "id"), window=(count(here), count(there)), how=how)
    )
    assert found == expected.output and counts == expected.counts


@settings(max_examples=150)
@given(epochs, st.integers(1, 4), st.integers(1, 4), hows, st.one_of(st.none(), st.integers(0, 3)))
def test_a_join_by_an_attribute_meets_what_is_near(given, here, there, how, lateness):
    newest, sizes = {}, (here, there)
    reach = [size + (lateness or 0) for size in sizes]

    def holds(join, held, side, row):
        before = newest.get(row[0])
        if before is not None and row[1] < before:
            if lateness is not None and row[1] < before - lateness:
                join.counts["late"] += 1
                return False
            join.counts["backwards"] += lateness is None
        else:
            newest[row[0]] = row[1]
            for each in (0, 1):
                limit = row[1] - reach[each]
                join.drop(held, each, lambda old, limit=limit: old[0] == row[0] and old[1] < limit)
        join.after = lambda held, side, row: join.drop(
            held, side, lambda old: old is row and old[1] < newest[row[0]] - reach[side]
        )
        # The earlier of the two must still be in the window of its side when the later one's time has come.
        return lambda other: -sizes[side] <= row[1] - other[1] <= sizes[1 - side]

    expected = Windows(given, holds, how)
    if lateness is None:
        window = delta("at", here), delta("then", there)
    else:
        window = event_time("at", here, lateness=lateness), event_time("then", there, lateness=lateness)
    found, counts = meet(given, lambda one, two: one.join(renamed(two), by=("k", "id"), window=window, how=how))
    assert found == expected.output
    assert counts == {what: number for what, number in expected.counts.items() if number}


def test_a_function_makes_the_result_of_a_join():
    given = [([("a", 1, 5)], [("a", 1, 7), ("b", 1, 8)])]
    found, _ = meet(
        given,
        lambda one, two: one.join(
            two,
            by=("k", "id"),
            window=count(2),
            how="outer",
            function=lambda one, other: (one.x + other.y,),
            schema="z long",
        ),
    )
    assert found == [(12,)]


def test_a_stream_can_be_joined_with_itself():
    stream = ab.from_rows([("a", 1), ("a", 2)], "k string, x long")
    other = stream.map(lambda t: (t.k, t.x), schema="k string, y long")
    # The map was declared first, so each tuple comes to the right side before it comes to the left.
    pairs = [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 2, 2)]
    assert stream.join(other, by="k", window=count(9)).run_sequential() == pairs


# -- enrich --------------------------------------------------------------------------------------------------------


@given(epochs, st.sampled_from(["left", "inner"]))
def test_a_changing_table_gives_the_last_row_of_the_key(given, how):
    table, expected, nulls = {}, [], 0
    for side, row in arrivals(given):
        if side == 1:
            table[row[0]] = row[1:]
            continue
        nulls += row[0] is None
        found = None if row[0] is None else table.get(row[0])
        if found or how == "left":
            expected.append((*row, *(found or (None, None))))
    output, counts = meet(given, lambda one, two: one.enrich(renamed(two), by=("k", "id"), how=how))
    assert output == expected and counts.get("null_key", 0) == nulls


TABLE = [("a", 1, "one"), ("b", 2, "two"), ("a", 3, "last")]


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        [{"id": row[0], "code": row[1], "word": row[2]} for row in TABLE],
        {"a": (3, "last"), "b": (2, "two")},
        {"a": {"code": 3, "word": "last"}, "b": {"code": 2, "word": "two"}},
    ],
    ids=["rows", "dicts", "dict of tuples", "dict of dicts"],
)
def test_a_table_that_never_changes_needs_no_state(table, how):
    stream = ab.from_rows([("a", 9), ("c", 8), (None, 7)], "k string, x long")
    found = stream.enrich(table, by=("k", "id"), how=how, schema="id string, code long, word string")
    take_anomalies()
    expected = [("a", 9, 3, "last"), ("c", 8, None, None), (None, 7, None, None)]
    assert found.run_sequential() == (expected if how == "left" else expected[:1])
    assert taken() == {"null_key": 1}
    plan = found.aggregate(by="k", window=tumbling(2), n=agg.count()).plan()
    assert [chain.operators for chain in plan.chains] == [("enrich", "aggregate")]


def test_a_key_of_several_columns_finds_rows_of_a_dict():
    stream = ab.from_rows([("a", 1)], "k string, x long")
    found = stream.enrich({("a", 1): ("yes",)}, by=["k", "x"], schema="k string, x long, word string")
    assert found.run_sequential() == [("a", 1, "yes")]


# -- combine -------------------------------------------------------------------------------------------------------


@given(epochs, st.booleans())
def test_combine_lets_the_smaller_head_go_when_both_sides_have_one(given, keyed):
    waiting = collections.defaultdict(lambda: ([], []))
    newest, expected, counts = {}, [], collections.Counter()
    for side, row in arrivals(given):
        key = row[0] if keyed else ()
        counts["null_key"] += keyed and row[0] is None
        counts["backwards"] += row[1] < newest.get((key, side), -1)
        newest[key, side] = max(row[1], newest.get((key, side), -1))
        heads = waiting[key]
        heads[side].append(row)
        while heads[0] and heads[1]:
            expected.append(heads[heads[1][0][1] < heads[0][0][1]].pop(0))
    output, found = meet(given, lambda one, two: one.combine(two, on="at", by="k" if keyed else None), (LEFT, LEFT))
    assert output == expected and found == {what: number for what, number in counts.items() if number}


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_combining_ordered_streams_gives_an_ordered_stream(one, other):
    output, counts = meet(
        [([(at,) for at in sorted(one)], [(at,) for at in sorted(other)])],
        lambda one, two: one.combine(two, on="at"),
        ("at long", "at long"),
    )
    assert [at for (at,) in output] == sorted(one + other)[: len(output)] and not counts


def test_combine_fails_or_drops_what_has_no_attribute():
    given = [([(None,), (1,)], [(2,)])]
    with pytest.raises(OperatorError, match="the attribute 'at' is null"):
        meet(given, lambda one, two: one.combine(two, on="at"), ("at long", "at long"))
    output, counts = meet(given, lambda one, two: one.combine(two, on="at", nulls="drop"), ("at long", "at long"))
    assert output == [(1,)] and counts == {"null_attribute": 1}


# -- union, route, split -------------------------------------------------------------------------------------------


@given(epochs)
def test_a_union_has_all_tuples_in_the_order_of_the_sources(given):
    output, _ = meet(given, lambda one, two: one.union(two), (LEFT, LEFT))
    assert output == [row for _, row in arrivals(given)]


@given(st.lists(st.integers(0, 20)))
def test_a_split_sends_each_tuple_to_the_first_predicate_that_holds(numbers):
    stream = ab.from_rows([(n,) for n in numbers], "x long")
    even, large, rest = stream.split(lambda t: t.x % 2 == 0, lambda t: t.x > 10)
    assert even.run_sequential() == [(n,) for n in numbers if n % 2 == 0]
    assert large.run_sequential() == [(n,) for n in numbers if n % 2 and n > 10]
    assert rest.run_sequential() == [(n,) for n in numbers if n % 2 and n <= 10]
    assert rest.union(even, large).run_sequential() == [(n,) for n in numbers]


@given(st.lists(st.integers(0, 20)))
def test_a_route_sends_each_tuple_where_the_function_says(numbers):
    ways = ab.from_rows([(n,) for n in numbers], "x long").route(lambda t: t.x % 3, 3)
    for at, way in enumerate(ways):
        assert way.run_sequential() == [(n,) for n in numbers if n % 3 == at]


def test_streams_of_different_sources_never_share_a_number():
    left, right = ab.from_rows([], "x long"), ab.from_rows([], "x long")
    both = left.filter(bool).union(right.filter(bool))
    nodes = {node.id for node in (both._node, *both._node.inputs, left._node, right._node)}
    assert len(nodes) == 5


# -- arguments that mean nothing -----------------------------------------------------------------------------------


def left():
    return ab.from_rows([], LEFT)


def right():
    return ab.from_rows([], RIGHT)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: left().union(), "union at .* expected at least one other stream"),
        (lambda: left().union(3), "union at .* expected a stream, found 3"),
        (lambda: left().union(right()), "union at .* expected streams with the columns k string.* found id string"),
        (lambda: left().join(3, by="k", window=count(1)), "join at .* expected a stream, found 3"),
        (lambda: left().join(right(), by="k", window=count(1)), "'k' is not a column on the right; columns: id, at, y"),
        (lambda: left().join(right(), by=("x", "nope"), window=count(1)), "'nope' is not a column on the right"),
        (lambda: left().join(right(), by=("k", "at"), window=count(1)), "'k' is string on the left, but 'at' is int64"),
        (lambda: left().join(right(), by=[], window=count(1)), "the key is empty"),
        (lambda: left().join(right(), by=[3], window=count(1)), "expected a column, a pair"),
        (lambda: left().join(right(), by=("k", "id"), window=count(1)), "both sides have a column 'at'; rename"),
        (lambda: left().join(right(), by=("k", "id"), window=tumbling(1)), "window=.*expected count"),
        (lambda: left().join(right(), by=("k", "id"), window=(count(1), delta("at", 1))), "a pair of one kind"),
        (lambda: left().join(right(), by=("k", "id"), window=count(1), how="full"), "how='full': expected one of"),
        (lambda: left().join(right(), by=("k", "id"), window=count(1), function=3), "expected a function of two"),
        (lambda: left().join(right(), by=("k", "id"), window=count(1), function=max), "give schema="),
        (
            lambda: left().join(
                right(), by=("k", "id"), window=(delta("at", 1), delta("id", 1)), function=max, schema="x long"
            ),
            "expected a number, date or timestamp",
        ),
        (lambda: left().enrich(3, by="k"), "enrich at .* expected a stream, a list of rows or a dict, found 3"),
        (lambda: left().enrich([], by="k"), "the columns of the table are unknown"),
        (lambda: left().enrich([], by="k", schema="k string"), "nothing to add"),
        (lambda: left().enrich([], by="k", schema="k string, x long"), "both sides have a column 'x'"),
        (lambda: left().enrich([(1, "a")], by="k", schema="k string, z string"), "row 0 of the table does not fit"),
        (lambda: left().enrich([], by="k", schema="k string, z string", how="outer"), "expected 'left' or 'inner'"),
        (lambda: left().enrich(right(), by=("k", "id"), schema="k string"), "leave out schema"),
        (lambda: left().combine(right(), on="at"), "combine at .* the same columns"),
        (lambda: left().combine(left(), on="nope"), "on='nope': no such column; columns: k, at, x"),
        (lambda: left().combine(left(), on="at", nulls="skip"), "nulls='skip': expected"),
        (lambda: left().route(3, 2), "route at .* expected a function of one tuple, found 3"),
        (lambda: left().route(len, 0), "route at .* ways=0; expected"),
        (lambda: left().split(), "split at .* expected at least one predicate"),
        (lambda: left().split(3), "split at .* expected functions of one tuple, found 3"),
        (lambda: left().punctuate(3), "punctuate at .* expected a function of one tuple, found 3"),
    ],
)
def test_streams_that_cannot_meet_are_refused_with_operator_and_line(build, complaint):
    with pytest.raises((ProgramError, SchemaError), match=complaint) as caught:
        build()
    assert "test_joins.py:" in str(caught.value)
