"""Every kind of window against a plain statement of what it means."""

import collections
import datetime
import decimal
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, count, delta, event_time, punctuation, sliding, time, tumbling
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import OperatorError, ProgramError
from anabranch.operators.epoch_context import take_anomalies

COLUMNS = "k string, at long, x double, n long"
keys = st.sampled_from(["a", "b", None])
values = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([1e16, -1e16, 0.1, -0.0]))
rows = st.lists(st.tuples(keys, st.integers(0, 30), values, st.one_of(st.none(), st.integers(-5, 5))), max_size=40)
epochs = st.lists(rows, min_size=1, max_size=4)

product = agg.custom(lambda: 1, lambda a, n: a * (n or 1) % 1009, lambda a: a, "long", "n")
balance = agg.custom(lambda: 0, lambda a, n: a + (n or 0), lambda a: a, "long", "n", remove=lambda a, n: a - (n or 0))
longest = agg.custom(lambda: 0, lambda a, t: max(a, len(t.k or "")), lambda a: a, "long")

AGGREGATIONS = {
    "rows": agg.count(),
    "xs": agg.count("x"),
    "total": agg.sum("x"),
    "whole": agg.sum("n"),
    "low": agg.min("x"),
    "high": agg.max("x"),
    "mean": agg.avg("x"),
    "middle": agg.avg("n"),
    "first": agg.first("x"),
    "last": agg.last("x"),
    "any": agg.any("k"),
    "all": agg.collect("x"),
    "product": product,
    "balance": balance,
    "longest": longest,
}


def added(numbers):
    """From left to right: since 3.12 Python's own sum is cleverer."""
    total = None
    for number in numbers:
        total = number if total is None else total + number
    return total


def result(key, window):
    """What the aggregations are of a list of tuples, said once more."""
    xs = [x for _, _, x, _ in window if x is not None]
    ns = [n for _, _, _, n in window if n is not None]
    products = 1
    for n in ns:
        products = products * (n or 1) % 1009
    return (
        *(() if key is Ellipsis else (key,)),
        len(window),
        len(xs),
        added(xs),
        sum(ns) if ns else None,
        min(xs, default=None),
        max(xs, default=None),
        added([0, *xs]) / len(xs) if xs else None,
        sum(ns) / len(ns) if ns else None,
        window[0][2],
        window[-1][2],
        window[0][0],
        [x for _, _, x, _ in window],
        products,
        sum(ns),
        max(len(k or "") for k, _, _, _ in window),
    )


def shown(results):
    return [repr(tuple(row)) for row in results]


def aggregated(given, window, by="k", clocks=()):
    stream = from_epochs(given if given and isinstance(given[0], list) else [given], COLUMNS)
    take_anomalies()
    run = run_epochs([stream.aggregate(by=by, window=window, **AGGREGATIONS)._node], clocks)
    return shown(run.output)


def by_key(given, of_key):
    """Results of each key by itself, put together by the tuple that caused them."""
    numbered = collections.defaultdict(list)
    for number, row in enumerate(given):
        numbered[row[0]].append((number, row))
    found = []
    for key, tuples in numbered.items():
        for place, number, window in of_key(tuples):
            found.append((number, place, result(key, window)))
    return shown(each for _, _, each in sorted(found, key=lambda each: each[:2]))


# -- tumbling ------------------------------------------------------------------------------------------------


@given(rows, st.integers(1, 5))
def test_tumbling_count_cuts_a_keys_tuples_into_pieces(given, size):
    def pieces(tuples):
        for at in range(0, len(tuples) - size + 1, size):
            piece = tuples[at : at + size]
            yield 0, piece[-1][0], [row for _, row in piece]

    assert aggregated(given, tumbling(count(size))) == by_key(given, pieces)


@given(rows, st.integers(0, 8))
def test_tumbling_delta_closes_with_the_first_tuple_beyond_and_counts_steps_backwards(given, size):
    backwards = 0

    def pieces(tuples):
        nonlocal backwards
        window = []
        for number, row in tuples:
            if window and row[1] - window[0][1] > size:
                yield 0, number, window
                window = []
            backwards += bool(window) and row[1] < window[0][1]
            window = [*window, row]

    expected = by_key(given, pieces)
    assert aggregated(given, delta("at", size)) == expected
    counted = take_anomalies()
    assert counted.get(("aggregate", "backwards"), 0) == backwards
    assert counted.get(("aggregate", "null_key"), 0) == sum(row[0] is None for row in given)


def test_a_window_over_the_whole_stream_needs_no_key():
    stream = ab.from_rows([("a", 1), ("b", 2), ("a", 3), ("a", 4)], "k string, x long")
    totals = stream.aggregate(by=None, window=tumbling(2), total=agg.sum("x"))
    assert totals.run_sequential() == [(3,), (7,)] and totals.columns == ["total"]
    assert totals.plan().chains == ()


@given(epochs, st.lists(st.sampled_from(range(0, 4001, 500)), min_size=4, max_size=4), st.integers(1, 5))
def test_tumbling_time_closes_at_the_start_of_an_epoch_in_the_order_of_the_first_tuples(given, steps, seconds):
    clocks = [sum(steps[: at + 1]) for at in range(4)]
    expected = []
    windows = {}  # in the order in which they were opened
    for clock, epoch in zip(clocks, given, strict=False):
        for key, (began, window) in list(windows.items()):
            if clock - began >= seconds * 1000:
                expected.append(result(key, window))
                del windows[key]
        for row in epoch:
            windows.setdefault(row[0], (clock, []))[1].append(row)
    assert aggregated(given, time(seconds), clocks=clocks) == shown(expected)


@given(rows)
def test_punctuation_windows_close_at_punctuations_in_the_order_of_the_first_tuples(given):
    stream = ab.from_rows(given, COLUMNS).punctuate(lambda t: t.at % 5 == 0)
    found = shown(stream.aggregate(by="k", window=punctuation(), **AGGREGATIONS).run_sequential())
    expected = []
    windows = {}
    for row in given:
        windows.setdefault(row[0], []).append(row)
        if row[1] % 5 == 0:
            expected += [result(key, window) for key, window in windows.items()]
            windows = {}
    assert found == shown(expected)


# -- event time ------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(rows, st.integers(1, 9), st.integers(0, 9), st.integers(0, 6))
def test_event_time_windows_hold_what_their_span_says_and_late_tuples_are_counted(given, size, slide, lateness):
    every = 1 + slide % size
    counts = collections.Counter()

    def windows(tuples):
        closed, held, newest = set(), collections.defaultdict(list), None
        for number, row in tuples:
            mine = [
                start
                for start in range(-size - every, row[1] + 1)
                if start % every == 0 and start <= row[1] < start + size
            ]
            open_ones = [start for start in mine if newest is None or start + size > newest - lateness]
            counts["late"] += not open_ones
            counts["partly_late"] += 0 < len(open_ones) < len(mine)
            for start in open_ones:
                assert start not in closed
                held[start].append(row)
            newest = row[1] if newest is None else max(newest, row[1])
            for start in sorted(held):
                if start + size <= newest - lateness:
                    yield start, number, held.pop(start)
                    closed.add(start)

    expected = by_key(given, windows)
    policy = event_time("at", size, lateness=lateness)
    window = policy if every == size else sliding(policy, every=every)
    assert aggregated(given, window) == expected
    counted = take_anomalies()
    assert {what: counted.get(("aggregate", what), 0) for what in counts} == counts


def moment(second):
    return datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=second)


@pytest.mark.parametrize(
    ("kind", "make", "size"),
    [
        ("timestamp", moment, 10),
        ("timestamp", moment, datetime.timedelta(seconds=10)),
        ("date", lambda day: datetime.date(1970, 1, 1) + datetime.timedelta(days=day + 20000), 10),
        ("double", float, 10),
        ("decimal(9,2)", decimal.Decimal, 10),
    ],
    ids=["timestamp", "timedelta", "date", "double", "decimal"],
)
def test_event_time_is_in_the_attributes_own_unit(kind, make, size):
    stream = ab.from_rows([("a", make(at)) for at in (0, 9, 10, 11, 25)], f"k string, at {kind}")
    found = stream.aggregate(
        by="k", window=event_time("at", size), n=agg.count(), start=agg.window_start(), end=agg.window_end()
    ).run_sequential()
    assert [tuple(row)[1:] for row in found] == [(2, make(0), make(10)), (2, make(10), make(20))]


def test_event_windows_begin_below_zero_too():
    stream = ab.from_rows([(decimal.Decimal(at),) for at in ("-0.5", "0.5", "3")], "at decimal(9,1)")
    found = stream.aggregate(by=None, window=event_time("at", 1), start=agg.window_start()).run_sequential()
    assert found == [(-1,), (0,)]


# -- sliding ---------------------------------------------------------------------------------------------------


@given(rows, st.integers(1, 6), st.integers(1, 4))
def test_sliding_count_gives_the_last_tuples_every_so_many(given, size, every):
    def windows(tuples):
        for at in range(every, len(tuples) + 1, every):
            yield 0, tuples[at - 1][0], [row for _, row in tuples[max(0, at - size) : at]]

    assert aggregated(given, sliding(count(size), every=count(every))) == by_key(given, windows)


@given(rows, st.integers(0, 9), st.integers(1, 4))
def test_sliding_delta_gives_the_tuples_not_too_far_below_the_newest(given, size, every):
    def windows(tuples):
        window = []
        for at, (number, row) in enumerate(tuples, 1):
            while window and row[1] - window[0][1] > size:
                window = window[1:]
            window = [*window, row]
            if at % every == 0:
                yield 0, number, window

    assert aggregated(given, sliding(delta("at", size), every)) == by_key(given, windows)


@given(rows, st.integers(0, 9), st.integers(0, 9))
def test_a_sliding_window_triggered_by_a_delta_gives_what_was_before_the_tuple_beyond(given, size, every):
    def windows(tuples):
        window, anchor = [], None
        for number, row in tuples:
            if anchor is not None and row[1] - anchor > every:
                yield 0, number, window
                anchor = row[1]
            anchor = row[1] if anchor is None else anchor
            while window and row[1] - window[0][1] > size:
                window = window[1:]
            window = [*window, row]

    assert aggregated(given, sliding(delta("at", size), delta("at", every))) == by_key(given, windows)


@given(
    epochs, st.lists(st.sampled_from(range(0, 4001, 500)), min_size=4, max_size=4), st.integers(1, 5), st.integers(1, 3)
)
def test_sliding_time_gives_the_tuples_of_the_last_seconds(given, steps, size, every):
    clocks = [sum(steps[: at + 1]) for at in range(4)]
    expected = []
    windows = {}
    for clock, epoch in zip(clocks, given, strict=False):
        for key, held in list(windows.items()):
            if clock - held["since"] >= every * 1000:
                held["since"] = clock
                recent = [row for at, row in held["window"] if clock - at <= size * 1000]
                if recent:
                    expected.append(result(key, recent))
                else:
                    del windows[key]
        for row in epoch:
            windows.setdefault(row[0], {"since": clock, "window": []})["window"].append((clock, row))
    found = aggregated(given, sliding(time(size), every=time(every)), clocks=clocks)
    assert found == shown(expected)


@given(epochs, st.lists(st.sampled_from(range(0, 4001, 500)), min_size=4, max_size=4), st.integers(1, 5))
def test_a_window_of_seconds_can_be_triggered_by_tuples(given, steps, size):
    clocks = [sum(steps[: at + 1]) for at in range(4)]
    numbered = [(clock, row) for clock, epoch in zip(clocks, given, strict=False) for row in epoch]
    expected = [
        result(
            row[0], [other for at, other in numbered[: place + 1] if other[0] == row[0] and clock - at <= size * 1000]
        )
        for place, (clock, row) in enumerate(numbered)
    ]
    assert aggregated(given, sliding(time(size)), clocks=clocks) == shown(expected)


@given(rows, st.integers(1, 4))
def test_a_sliding_window_triggered_by_punctuations_tells_of_keys_with_new_tuples(given, size):
    stream = ab.from_rows(given, COLUMNS).punctuate(lambda t: t.at % 5 == 0)
    found = stream.aggregate(by="k", window=sliding(count(size), punctuation()), **AGGREGATIONS).run_sequential()
    expected, news, seen = [], {}, collections.defaultdict(list)
    for row in given:
        news[row[0]] = True
        seen[row[0]].append(row)
        if row[1] % 5 == 0:
            expected += [result(key, seen[key][-size:]) for key in news]
            news = {}
    assert shown(found) == shown(expected)


def test_a_sliding_sum_of_floats_is_that_of_its_tuples_bit_for_bit():
    values = [1e16, 1.0, 1.0, -1e16, 0.1, 0.2]
    stream = ab.from_rows([("a", value) for value in values], "k string, x double")
    found = [row.y for row in stream.aggregate(by="k", window=sliding(2), y=agg.sum("x")).run_sequential()]
    assert found == [values[0], *(a + b for a, b in itertools.pairwise(values))]
    assert found[2] == 2.0, "taking 1e16 out again would have left 0.0 or 1.0"


def test_a_sliding_sum_of_integers_costs_the_same_for_any_window():
    source = ab.from_rows([("a", 1)], "k string, x long").aggregate(
        by="k", window=sliding(1000), y=agg.sum("x"), n=agg.count(), mean=agg.avg("x"), last=agg.last("x")
    )
    assert "for (" not in source._node.logic.prototype.source
    floats = ab.from_rows([("a", 1.0)], "k string, x double").aggregate(by="k", window=sliding(1000), y=agg.sum("x"))
    assert "for (" in floats._node.logic.prototype.source


# -- bad input -------------------------------------------------------------------------------------------------


def counted(stream):
    take_anomalies()
    found = stream.run_sequential()
    return found, {what: number for (_, what), number in take_anomalies().items()}


@pytest.mark.parametrize("window", [tumbling(1), sliding(1), sliding(count(1), 1)])
def test_a_null_key_is_kept_dropped_or_fatal_and_always_counted(window):
    stream = ab.from_rows([("a", 1), (None, 2), ("a", 3)], "k string, x long")
    kept = stream.aggregate(by="k", window=window, x=agg.sum("x"))
    assert counted(kept) == ([("a", 1), (None, 2), ("a", 3)], {"null_key": 1})
    dropped = stream.aggregate(by="k", window=window, x=agg.sum("x"), null_key="drop")
    assert counted(dropped) == ([("a", 1), ("a", 3)], {"null_key": 1})
    with pytest.raises(OperatorError, match=r"aggregate-3 \(.*:\d+\).*the key column 'k' is null"):
        stream.aggregate(by="k", window=window, x=agg.sum("x"), null_key="fail").run_sequential()


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("policy", "bad"),
    [(delta, [None, NAN]), (event_time, [None, NAN, INFINITY, -INFINITY])],
)
def test_a_null_attribute_is_dropped_and_counted_if_asked_and_fatal_if_not(policy, bad):
    rows = [(at,) for at in (0.0, *bad, 1.0, 30.0)]
    stream = ab.from_rows(rows, "at double")
    window = policy("at", 10, nulls="drop")
    assert counted(stream.aggregate(by=None, window=window, n=agg.count())) == ([(2,)], {"null_attribute": len(bad)})
    for value in bad:
        with pytest.raises(OperatorError, match="the window attribute 'at' is null; nulls='drop'"):
            stream.aggregate(by=None, window=policy("at", 10), n=agg.count()).run_sequential([(value,)])


def test_what_is_counted_carries_the_operators_name():
    stream = ab.from_rows([(None,)], "k string").aggregate(by="k", window=tumbling(1), n=agg.count(), name="mine")
    take_anomalies()
    stream.run_sequential()
    assert take_anomalies() == {("mine", "null_key"): 1} and take_anomalies() == {}


# -- arguments that mean nothing ---------------------------------------------------------------------------------


def stream():
    return ab.from_rows([], COLUMNS)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: time(0), "positive number of seconds"),
        (lambda: time("1"), "positive number of seconds"),
        (lambda: tumbling(event_time("at", 0)), "expected more than 0"),
        (lambda: event_time("at", 1, lateness=-1), "expected 0 or more"),
        (lambda: event_time(3, 1), "expected the name of an attribute"),
        (lambda: delta("at", 1, nulls="skip"), "expected 'fail' or 'drop'"),
        (lambda: sliding(punctuation()), r"expected count\(n\), delta"),
        (lambda: sliding(count(3), every="x"), r"sliding\(count\(3\), every='x'\): expected count"),
        (lambda: sliding(event_time("at", 5), every=6), "tuples between two windows would belong to none"),
        (lambda: sliding(event_time("at", 5), every=datetime.timedelta(1)), "in one unit"),
        (lambda: sliding(event_time("at", 5), every=0), "expected more than 0"),
        (lambda: agg.custom(1, len, len, "long"), r"agg.custom\(create=1\): expected a function"),
        (lambda: agg.custom(list, len, len, "longer"), r"agg.custom\(type='longer'\): expected a type"),
        (lambda: agg.custom(list, len, len, "long", remove=3), r"remove=3"),
    ],
)
def test_a_window_that_means_nothing_is_refused_at_once(build, complaint):
    with pytest.raises(ProgramError, match=complaint):
        build()


@pytest.mark.parametrize(
    ("window", "more", "complaint"),
    [
        (event_time("nope", 1), {}, "no column 'nope'; columns: k, at, x, n"),
        (event_time("k", 1), {}, "expected a number, date or timestamp, found a column of string"),
        (event_time("at", 1.5), {}, "expected a whole number, found 1.5"),
        (event_time("at", datetime.timedelta(1)), {}, "the size must be a number"),
        (sliding(delta("at", 1), delta("x", 1)), {}, r"every=delta\('x', …\) needs a window delta\('x', …\)"),
        (
            tumbling(3),
            {"start": agg.window_start()},
            r"expected windows of event_time\(…\), found tumbling\(count\(3\)\)",
        ),
        (tumbling(3), {"null_key": "skip"}, "null_key='skip': expected one of 'keep', 'drop', 'fail'"),
        ("weekly", {}, "found 'weekly'"),
    ],
)
def test_a_window_that_does_not_fit_the_stream_is_refused_with_operator_and_line(window, more, complaint):
    with pytest.raises(ProgramError, match=rf"aggregate at .*test_windows\.py:\d+: .*{complaint}"):
        stream().aggregate(by="k", window=window, **{"y": agg.count(), **more})


def test_a_name_is_free_again_after_an_error():
    source = stream()
    with pytest.raises(ProgramError, match="no column"):
        source.aggregate(by="k", window=tumbling(1), y=agg.sum("nope"), name="mine")
    source.aggregate(by="k", window=tumbling(1), y=agg.sum("x"), name="mine")


def test_aggregations_of_decimals_are_exact_in_a_sliding_window():
    rows = [("a", decimal.Decimal(x)) for x in ("0.10", "0.20", "0.30")]
    sums = ab.from_rows(rows, "k string, x decimal(9,2)").aggregate(by="k", window=sliding(2), y=agg.sum("x"))
    assert [row.y for row in sums.run_sequential()] == [decimal.Decimal(x) for x in ("0.10", "0.30", "0.50")]


def test_a_mean_of_nothing_is_null_and_of_a_sliding_window_of_nulls_too():
    rows = [("a", 1), ("a", None), ("a", None)]
    means = ab.from_rows(rows, "k string, x long").aggregate(by="k", window=sliding(2), y=agg.avg("x"), s=agg.sum("x"))
    assert [(row.y, row.s) for row in means.run_sequential()] == [(1.0, 1), (1.0, 1), (None, None)]
