"""What each method of a stream means, by the sequential run."""

import dataclasses
import datetime
import decimal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import anabranch as ab
from anabranch import agg, count, delta, tumbling
from anabranch.errors import InputError, OperatorError, ProgramError, SchemaError, StateError
from anabranch.testing import run_parallel

D = decimal.Decimal
NAN = float("nan")


def numbers(*values: int | None) -> ab.Stream:
    return ab.from_rows([(value,) for value in values], "x long")


def keyed(*rows: tuple) -> ab.Stream:
    return ab.from_rows(rows, "k string, x long")


# -- sources -----------------------------------------------------------------------------------------------


def test_rows_come_in_their_order_in_whatever_form():
    class Item(NamedTuple):
        x: int
        s: str

    stream = ab.from_rows([Item(3, "a"), {"s": "b", "x": 1}, (2, "c")], Item)
    assert stream.run_sequential() == [(3, "a"), (1, "b"), (2, "c")]
    assert stream.columns == ["x", "s"] and repr(stream) == "Stream[x bigint, s string]"


def test_rows_may_be_given_when_the_program_runs():
    assert numbers(1).run_sequential([(5,), (6,)]) == [(5,), (6,)]


def test_how_rows_are_cut_into_epochs_does_not_change_the_sequential_run():
    rows = [(n,) for n in range(7)]
    assert ab.from_rows(rows, "x long", rows_per_epoch=2).run_sequential() == rows


def test_a_stream_of_no_rows_is_empty():
    assert ab.from_rows([], "x long").map(lambda t: t, schema="x long").run_sequential() == []


def test_a_row_that_does_not_fit_the_schema_is_told_with_its_number():
    stream = ab.from_rows([(1,), ("a",)], "x long", name="tap")
    with pytest.raises(InputError, match=r"source tap \(.*test_streams\.py:\d+\): row 1 .*column 'x' is bigint"):
        stream.run_sequential()


# -- map, filter, flat_map ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Double:
    y: float


class Pair(NamedTuple):
    x: int
    y: float


def test_map_gives_one_tuple_for_each():
    assert numbers(1, 2).map(lambda t: (t.x, t.x / 2), schema="x long, y double").run_sequential() == [
        (1, 0.5),
        (2, 1.0),
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda t: (t.x, t.x),
        lambda t: [t.x, t.x],
        lambda t: {"y": t.x, "x": t.x},
        lambda t: Pair(t.x, t.x),
    ],
    ids=["tuple", "list", "dict", "named tuple"],
)
def test_map_may_return_any_form_and_ints_become_doubles_where_the_column_is(function):
    (row,) = numbers(3).map(function, schema="x long, y double").run_sequential()
    assert row == (3, 3.0) and type(row.y) is float


def test_the_schema_may_come_from_the_annotation():
    def half(t) -> Pair:
        return Pair(t.x, t.x / 2)

    def doubles(t) -> Iterator[Double]:
        yield Double(t.x * 2.0)

    assert str(numbers(1).map(half).schema) == "x bigint, y double"
    assert numbers(1, 2).flat_map(doubles).run_sequential() == [(2.0,), (4.0,)]


def test_a_function_that_only_returns_its_argument_keeps_the_schema():
    def same(t):
        return t

    def odd(t):
        if t.x % 2:
            yield t

    assert numbers(1).map(same).schema == numbers(1).schema
    assert numbers(1, 2, 3).flat_map(odd).run_sequential() == [(1,), (3,)]


def test_filter_keeps_the_tuples_for_which_the_function_is_true():
    assert numbers(0, 1, 2, None).filter(lambda t: t.x).run_sequential() == [(1,), (2,)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, []),
        ([], []),
        ((1, 2.0), [(1, 2.0)]),
        ({"x": 1, "y": 2.0}, [(1, 2.0)]),
        (Pair(1, 2.0), [(1, 2.0)]),
        ([(1, 2.0), Pair(3, 4.0), {"x": 5, "y": 6.0}], [(1, 2.0), (3, 4.0), (5, 6.0)]),
        (iter([(1, 2.0)]), [(1, 2.0)]),
        (((n, 0.0) for n in (1, 2)), [(1, 0.0), (2, 0.0)]),
        ({(1, 2.0)}, [(1, 2.0)]),
    ],
    ids=["None", "nothing", "tuple", "dict", "named tuple", "list", "iterator", "generator", "set"],
)
def test_flat_map_may_return_none_one_tuple_or_many(result, expected):
    assert numbers(9).flat_map(lambda t: result, schema=Pair).run_sequential() == expected


class Returns(ab.Operator):
    def process(self, t):
        return {0: None, 1: (t.k, 1), 2: [(t.k, 1), (t.k, 2)], 3: {"k": t.k, "x": 3}, 4: t}[t.x]


def test_process_may_return_none_one_tuple_or_many():
    stream = keyed(("a", 0), ("a", 1), ("a", 2), ("a", 3), ("a", 4)).process(
        Returns(), by="k", schema="k string, x long"
    )
    assert [row.x for row in stream.run_sequential()] == [1, 1, 2, 3, 4]


def test_each_tuple_goes_down_before_the_next_is_made(capsys):
    """Depth first: what the operators print shows in which order they ran; what they keep is gone after the run."""

    def twice(t):
        for n in range(2):
            print(f"made {t.x}.{n}")
            yield t

    def note(t):
        print(f"took {t.x}")
        return True

    numbers(1, 2).flat_map(twice, schema="x long").filter(note).run_sequential()
    assert capsys.readouterr().out.splitlines() == [
        *("made 1.0", "took 1", "made 1.1", "took 1"),
        *("made 2.0", "took 2", "made 2.1", "took 2"),
    ]


# -- process -----------------------------------------------------------------------------------------------


class Running(ab.Operator):
    start: int = 0
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x + self.start
        yield (t.k, self.total)


def test_every_key_has_its_own_state_and_all_share_the_configuration():
    stream = keyed(("a", 1), ("b", 10), ("a", 2)).process(Running(start=100), by="k", schema="k string, x long")
    assert stream.run_sequential() == [("a", 101), ("b", 110), ("a", 203)]


def test_a_state_factory_makes_a_value_for_each_key():
    class Names(ab.Operator):
        names: list = ab.state(factory=list)

        def process(self, t):
            self.names.append(t.x)
            yield (t.k, len(self.names))

    stream = keyed(("a", 1), ("b", 1), ("a", 1)).process(Names(), by="k", schema="k string, x long")
    assert stream.run_sequential() == [("a", 1), ("b", 1), ("a", 2)]


def count_per_key(column: str, *values) -> list[int]:
    class Count(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):
            self.seen += 1
            yield (self.seen,)

    stream = ab.from_rows([(value,) for value in values], f"k {column}").process(Count(), by="k", schema="n long")
    return [row.n for row in stream.run_sequential()]


def test_every_nan_is_one_key_and_so_are_both_zeros_and_null_is_a_key():
    assert count_per_key("double", NAN, float("nan"), 1.0, NAN) == [1, 2, 1, 3]
    assert count_per_key("double", 0.0, -0.0) == [1, 2]
    assert count_per_key("double", None, NAN, None) == [1, 1, 2]
    assert count_per_key("string", None, "", None) == [1, 1, 2]


def test_a_key_of_several_columns_normalises_each():
    stream = ab.from_rows([(NAN, 0.0), (float("nan"), -0.0), (NAN, 1.0)], "a double, b double")
    counts = stream.aggregate(by=["a", "b"], window=tumbling(2), n=agg.count()).run_sequential()
    assert len(counts) == 1 and counts[0].n == 2


class Leaky(ab.Operator):
    kept: int = ab.state(default=0)
    limit: int = 3

    def process(self, t):
        self.lost = t.x
        return t


class ChangesConfiguration(Leaky):
    def process(self, t):
        self.limit = t.x
        return t


class Deletes(Leaky):
    def process(self, t):
        del self.kept
        return t


class DeletesAndAdds(Leaky):
    def __init__(self):
        self.size = 3

    def process(self, t):
        del self.size
        self.sizes = 3
        return t


@pytest.mark.parametrize(
    ("operator", "complaint"),
    [
        (Leaky(), r"changed self\.lost"),
        (ChangesConfiguration(limit=4), r"changed self\.limit"),
        (ChangesConfiguration(), r"changed self\.limit"),
        (Deletes(), r"deleted self\.kept"),
        (DeletesAndAdds(), r"changed self\.size"),
    ],
    ids=["new attribute", "changed configuration", "changed default", "deleted state", "deleted and added"],
)
def test_an_attribute_that_is_not_declared_as_state_is_refused(operator, complaint):
    stream = keyed(("a", 1)).process(operator, by="k")
    with pytest.raises(StateError, match=rf"operator {type(operator).__name__} \(.*:\d+\).*{complaint}"):
        stream.run_sequential()


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: ab.state(default=[]), "write state\\(factory=list\\)"),
        (lambda: ab.state(default=set()), "write state\\(factory=set\\)"),
        (lambda: ab.state(factory=3), "expected a callable"),
        (lambda: Running(nope=1), "no such configuration; known: start"),
        (lambda: Running(total=1), "total is state, not configuration"),
        (lambda: keyed().process(Running, by="k"), "give an instance, Running\\(\\), not the class"),
        (lambda: keyed().process(object(), by="k"), "needs an instance of an ab.Operator class"),
        (lambda: keyed().process(ab.Operator(), by="k"), "has no process\\(self, t\\) method"),
    ],
)
def test_a_wrong_operator_is_refused_when_the_program_is_built(build, complaint):
    with pytest.raises(ProgramError, match=complaint):
        build()


def test_names_are_unique_and_a_name_that_is_taken_is_refused():
    stream = keyed().filter(bool).filter(bool, name="mine")
    assert [operator.name for operator in stream.plan().operators] == ["source", "filter", "mine"]
    for build in (
        lambda: stream.filter(bool, name="mine"),
        lambda: stream.process(Returns(), by="k", schema="k string", name="mine"),
        lambda: stream.filter(bool, name="not a name"),
    ):
        with pytest.raises(ProgramError, match=r"the operator at .*test_streams\.py:\d+ cannot have the name"):
            build()


# -- aggregate ---------------------------------------------------------------------------------------------


def test_a_count_window_closes_with_its_nth_tuple_and_the_rest_waits():
    stream = keyed(("a", 1), ("b", 5), ("a", 2), ("a", 3), ("b", 6), ("a", 4), ("a", 9))
    for window in (tumbling(2), tumbling(count(2))):
        sums = stream.aggregate(by="k", window=window, total=agg.sum("x"), n=agg.count())
        assert sums.run_sequential() == [("a", 3, 2), ("b", 11, 2), ("a", 7, 2)]
        assert str(sums.schema) == "k string, total bigint, n bigint"


def test_a_delta_window_closes_with_the_first_tuple_beyond_it():
    stream = ab.from_rows([("a", t, 1) for t in (0, 5, 10, 11, 3, 21, 22)], "k string, time long, x long")
    sums = stream.aggregate(by="k", window=tumbling(delta("time", 10)), n=agg.count(), last=agg.last("time"))
    # 10 is not beyond 0 + 10; 3 lies below 11 and belongs to its window; 21 is not beyond 11 + 10, 22 is.
    assert sums.run_sequential() == [("a", 3, 10), ("a", 3, 21)]


def moment(second: int) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1, 0, 0, second, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "values", "size"),
    [
        ("timestamp", [moment(0), moment(10), moment(11)], 10),
        ("timestamp", [moment(0), moment(10), moment(11)], datetime.timedelta(seconds=10)),
        ("date", [datetime.date(2024, 1, 1), datetime.date(2024, 1, 11), datetime.date(2024, 1, 12)], 10),
        ("double", [0.0, 1.5, 1.75], 1.5),
        ("decimal(9,2)", [D("0"), D("1.50"), D("1.51")], 1.5),
    ],
)
def test_a_delta_is_in_the_attributes_own_unit_and_seconds_for_timestamps(kind, values, size):
    stream = ab.from_rows([("a", value) for value in values], f"k string, at {kind}")
    counts = stream.aggregate(by="k", window=tumbling(delta("at", size)), n=agg.count())
    assert counts.run_sequential() == [("a", 2)]


def test_a_null_window_attribute_fails_the_tuple():
    stream = keyed(("a", None)).aggregate(by="k", window=tumbling(delta("x", 1)), n=agg.count())
    with pytest.raises(OperatorError, match="the window attribute 'x' is null"):
        stream.run_sequential()


AGGREGATIONS = [
    (agg.sum("x"), [None, 2, None, 3], 5, "bigint"),
    (agg.sum("x"), [None, None], None, "bigint"),
    (agg.count(), [None, 2], 2, "bigint"),
    (agg.count("x"), [None, 2], 1, "bigint"),
    (agg.min("x"), [None, 2, 1, None], 1, "bigint"),
    (agg.min("x"), [None], None, "bigint"),
    (agg.max("x"), [None, 2, 1, None], 2, "bigint"),
    (agg.max("x"), [None], None, "bigint"),
    (agg.avg("x"), [None, 2, 1], 1.5, "double"),
    (agg.avg("x"), [None], None, "double"),
    (agg.first("x"), [None, 2], None, "bigint"),
    (agg.first("x"), [2, None], 2, "bigint"),
    (agg.last("x"), [2, None], None, "bigint"),
    (agg.last("x"), [None, 2], 2, "bigint"),
    (agg.any("x"), [2, 2], 2, "bigint"),
    (agg.collect("x"), [2, None, 1], [2, None, 1], "array<bigint>"),
]


@pytest.mark.parametrize(("aggregation", "values", "expected", "kind"), AGGREGATIONS, ids=lambda v: str(v))
def test_what_an_aggregation_makes_of_values_and_nulls(aggregation, values, expected, kind):
    stream = keyed(*[("a", value) for value in values]).aggregate(by="k", window=tumbling(len(values)), y=aggregation)
    (row,) = stream.run_sequential()
    assert row.y == expected and type(row.y) is type(expected)
    assert str(stream.schema) == f"k string, y {kind}"


def test_windows_do_not_leak_into_one_another():
    values = [1, 2, None, None, 5, 6]
    names = ("sum", "min", "max", "avg", "first", "last", "collect", "count")
    wanted = {f"y_{name}": getattr(agg, name)("x") for name in names}
    rows = keyed(*[("a", value) for value in values]).aggregate(by="k", window=tumbling(2), **wanted).run_sequential()
    assert [tuple(row)[1:] for row in rows] == [
        (3, 1, 2, 1.5, 1, 2, [1, 2], 2),
        (None, None, None, None, None, None, [None, None], 0),
        (11, 5, 6, 5.5, 5, 6, [5, 6], 2),
    ]


def test_floats_are_added_in_the_order_of_the_stream():
    values = [1e16, 1.0, -1e16, 1.0]
    stream = ab.from_rows([("a", value) for value in values], "k string, x double")
    (row,) = stream.aggregate(by="k", window=tumbling(4), y=agg.sum("x")).run_sequential()
    assert row.y == ((1e16 + 1.0) + -1e16) + 1.0 != sum(sorted(values))


def test_a_sum_beyond_64_bits_is_an_error_and_no_wrong_number():
    stream = keyed(("a", 2**62), ("a", 2**62)).aggregate(by="k", window=tumbling(2), y=agg.sum("x"))
    with pytest.raises(OperatorError, match=r"aggregate \(.*column 'y' is bigint"):
        stream.run_sequential()


@pytest.mark.parametrize(
    "build",
    [
        lambda: count(0),
        lambda: count(True),
        lambda: count(2.0),
        lambda: delta("x", -1),
        lambda: delta("x", NAN),
        lambda: delta("x", "1"),
        lambda: delta(3, 1),
        lambda: tumbling("x"),
        lambda: keyed().aggregate(by="k", window=5, n=agg.count()),
        lambda: keyed().aggregate(by="k", window=tumbling(5)),
        lambda: keyed().aggregate(by="k", window=tumbling(5), n=sum),
        lambda: keyed().aggregate(by="k", window=tumbling(5), k=agg.count()),
        lambda: keyed().aggregate(by="k", window=tumbling(5), n=agg.sum("k")),
        lambda: keyed().aggregate(by="k", window=tumbling(delta("k", 1)), n=agg.count()),
        lambda: keyed().aggregate(by="k", window=tumbling(delta("x", datetime.timedelta(1))), n=agg.count()),
    ],
)
def test_a_window_or_aggregation_that_makes_no_sense_is_refused_when_the_program_is_built(build):
    with pytest.raises(ProgramError, match=r"[Ee]xpected|nothing to compute|already|must be a number"):
        build()


# -- explain -----------------------------------------------------------------------------------------------


def test_the_plan_shows_regions_keys_and_lines(capsys):
    stream = keyed().filter(bool, name="some").aggregate(by="k", window=tumbling(2), n=agg.count(), name="pairs")
    stream.explain()
    shown = capsys.readouterr().out
    assert "3 operators in 2 stages, 1 of them a region; 1 shuffle per epoch" in shown and "test_streams.py:" in shown
    assert shown.index("some") < shown.index("pairs") and "partitioned" in shown


def test_operators_that_keep_the_key_share_a_stage_and_others_begin_one():
    def stages(stream: ab.Stream) -> int:
        return len(stream.plan().layout.stages) - 1

    once = keyed().aggregate(by="k", window=tumbling(2), n=agg.count())
    assert stages(once) == 1
    assert stages(once.filter(bool).aggregate(by="k", window=tumbling(2), m=agg.sum("n"))) == 1
    assert stages(once.aggregate(by="n", window=tumbling(2), m=agg.count())) == 2
    assert (
        stages(once.map(lambda t: t, schema="k string, n long").aggregate(by="k", window=tumbling(2), m=agg.sum("n")))
        == 1
    )


# -- mistakes of a new user ----------------------------------------------------------------------------------


def test_a_function_that_forgets_its_return_is_refused():
    def double(t):
        t.x * 2

    def late(t):
        if t.x:
            return
        raise ValueError

    for function in (double, late):
        with pytest.raises(ProgramError, match=rf"map at .*: {function.__name__}\(\) returns nothing"):
            numbers(1).map(function, schema="y long")
    with pytest.raises(ProgramError, match=r"filter at .* returns nothing"):
        numbers(1).filter(double)
    assert numbers(1).map(lambda t: None, schema="y long").run_sequential() == [(None,)]


def test_a_key_that_is_no_column_is_told_what_to_do():
    with pytest.raises(SchemaError, match=r"aggregate at .*: the key 3 is not a column; expected a column, a field"):
        numbers(1).aggregate(by=3, window=tumbling(2), n=agg.count())


def test_enrich_advises_only_what_it_has():
    with pytest.raises(SchemaError, match="both sides have a column 'x'; rename one of them before") as found:
        keyed(("a", 1)).enrich([("a", 2)], by="k", schema="k string, x long")
    assert "function=" not in str(found.value)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_column_that_is_not_null_holds_no_null(channels):
    stream = keyed(("a", 1), ("b", None), ("a", 3)).map(lambda t: (t.k, t.x), schema="k string, y long not null")
    errors = []
    for run in (stream.run_sequential, lambda: run_parallel(stream, channels=channels)):
        with pytest.raises(OperatorError, match=r"column 'y' is bigint not null; found None") as found:
            run()
        errors.append(str(found.value).splitlines()[0].replace(", epoch 0", ""))
    assert errors[0] == errors[1]
    with pytest.raises(InputError, match=r"row 1 .*'x' is bigint not null"):
        ab.from_rows([(1,), (None,)], "x long not null").run_sequential()


def test_an_outer_side_may_be_null_even_if_its_columns_are_not():
    left = ab.from_rows([("a", 1), ("b", 2)], "k string not null, x long not null")
    enriched = left.enrich([("a", 5)], by="k", schema="k string, y long not null")
    assert enriched.run_sequential() == [("a", 1, 5), ("b", 2, None)] == run_parallel(enriched, channels=2)
