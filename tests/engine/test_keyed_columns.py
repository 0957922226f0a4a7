"""Aggregates over whole columns are those of one tuple after the other: switched on, off, and in turns."""

import datetime
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg
from anabranch.api.session import from_epochs
from anabranch.engine.worker import (
    clock_columns,
    join_columns,
    latest_columns,
    running_columns,
    seen_columns,
    session_columns,
    top_columns,
    window_columns,
)
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun, run_parallel
from tests.engine.column_ways import (
    AGGREGATIONS,
    COLUMNS,
    EXAMPLES,
    KEYS,
    NULL_KEYS,
    OTHERS,
    PHASES,
    START,
    STRICT,
    USUAL,
    arounds,
    epochs_of,
    in_all_ways,
    in_parallel,
    outcome,
    rows,
    state_of,
    ways,
)


@pytest.fixture
def taken(monkeypatch):
    """How often a batch was taken over columns."""
    counts = {"running": 0, "latest": 0, "windows": 0, "sessions": 0, "clock": 0, "joins": 0, "top": 0, "seen": 0}

    def count(what, kind, method):
        original = getattr(kind, method)

        def counted(*arguments):
            found = original(*arguments)
            counts[what] += found is not None
            return found

        monkeypatch.setattr(kind, method, counted)

    count("running", running_columns.RunningStep, "_taken")
    count("latest", latest_columns.LatestStep, "_taken")
    count("windows", window_columns.WindowColumns, "made")
    count("sessions", session_columns.SessionColumns, "made")
    count("clock", clock_columns.ClockColumns, "fold")
    count("joins", join_columns.JoinColumns, "taken")
    count("top", top_columns.TopStep, "_taken")
    count("seen", seen_columns.SeenStep, "_taken")
    return counts


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS),
    names=st.lists(st.sampled_from(USUAL), min_size=1, max_size=5, unique=True)
    | st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=3, unique=True),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    null_key=st.sampled_from(["keep", "keep", "drop", "fail"]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_running_aggregates(tmp_path_factory, ways, by, names, nulls, huge, null_key, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 100, nulls=nulls, huge=huge)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    chosen = {name: AGGREGATIONS[name] for name in names}
    stream = source.aggregate(by=by, window=ab.running(), null_key=null_key, **chosen)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


UPDATES = ["count", "names", "sum", "tiny", "mean"]
LATEST = ["name", ["small", "s"], ["k", "name", "at"], "n"]


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS),
    latest_of=st.sampled_from(LATEST),
    names=st.lists(st.sampled_from(UPDATES), min_size=1, max_size=3, unique=True)
    | st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=2, unique=True),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    null_key=st.sampled_from(["keep", "drop"]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_aggregates_of_updates(tmp_path_factory, ways, by, latest_of, names, nulls, huge, null_key, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 100, nulls=nulls, huge=huge)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    chosen = {name: AGGREGATIONS[name] for name in names}
    stream = source.aggregate(by=by, window=ab.running(latest_of=latest_of), null_key=null_key, **chosen)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


BOUNDS = {"begin": agg.window_start(), "end": agg.window_end(), "time": agg.window_time(), "why": agg.emission()}
FOLDED = [name for name in USUAL if name not in ("sizes", "different")]
SPANS = [(2, None), (7, None), (6, 2), (4, 1), (5, 2)]


def windows(stream, by, span, names, lateness=3, **more):
    size, every = span
    policy = ab.event_time("at", size)
    chosen = {name: AGGREGATIONS[name] for name in names}
    timed = stream.event_time("at", lateness=lateness)
    return timed.aggregate(by=by, window=policy if every is None else ab.sliding(policy, every=every), **chosen, **more)


@settings(max_examples=2 * EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS),
    span=st.sampled_from(SPANS),
    names=st.lists(st.sampled_from(FOLDED), min_size=1, max_size=4, unique=True)
    | st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=3, unique=True),
    bounds=st.sets(st.sampled_from(sorted(BOUNDS))),
    lateness=st.sampled_from([1, 6, 20, 20, 20, 20]),  # from 12 on none is late
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    spread=st.sampled_from([1, 5]),
    again=st.booleans(),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_windows(tmp_path_factory, ways, by, span, names, bounds, lateness, nulls, huge, spread, again, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 80, nulls=nulls, huge=huge, spread=spread)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    stream = windows(source, by, span, names, lateness, **{name: BOUNDS[name] for name in {*bounds, "time"}})
    if again:  # windows of what windows gave
        stream = stream.aggregate(by="time", window=ab.event_time("time", 4), n=agg.count(), last=agg.max("time"))
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


@settings(max_examples=2 * EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS),
    gap=st.sampled_from([0.2, 2, 5, 40]),
    names=st.lists(st.sampled_from(FOLDED), min_size=1, max_size=4, unique=True)
    | st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=3, unique=True),
    bounds=st.sets(st.sampled_from(sorted(BOUNDS))),
    lateness=st.sampled_from([1, 12, 13, 20]),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    spread=st.sampled_from([1, 5]),
    whole=st.booleans(),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_sessions(tmp_path_factory, ways, by, gap, names, bounds, lateness, nulls, huge, spread, whole, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 80, nulls=nulls, huge=huge, spread=spread)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    chosen = {name: AGGREGATIONS[name] for name in names} | {name: BOUNDS[name] for name in bounds}
    if whole:  # times as whole numbers
        source = source.map(lambda t: (*t, int(t.at.timestamp() * 10)), schema=f"{around['columns']}, moment long")
        timed, gap, attribute = source.event_time("moment", lateness=lateness * 10), max(1, int(gap * 10)), "moment"
    else:
        timed, attribute = source.event_time("at", lateness=lateness), "at"
    stream = timed.aggregate(by=by, window=ab.sessions(attribute, gap), **chosen)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


def joined(sources, by, sizes, lateness=3):
    left, right = sources
    left = left.event_time("at", lateness=lateness)
    right = right.event_time("at", lateness=lateness).select(k2="k", s2="s", at2="at", n2="n", name2="name")
    window = None if sizes is None else (ab.event_time("at", sizes[0]), ab.event_time("at2", sizes[1]))
    return left.join(right, by=by, window=window)


@settings(max_examples=2 * EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from([("k", "k2"), ("s", "s2"), [("k", "k2"), ("n", "n2")], [("k", "k2"), ("s", "s2")]]),
    sizes=st.sampled_from([(0, 0), (2, 0), (0, 3), (4, 1), None, None]),
    lateness=st.sampled_from([1, 6, 20]),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    spread=st.sampled_from([0, 1, 5]),  # 0: many at one time, in disorder
    one=st.booleans(),
    again=st.booleans(),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_joins(tmp_path_factory, ways, by, sizes, lateness, nulls, huge, spread, one, again, around, seed):
    chance = random.Random(seed)

    def epochs():
        sizes_of = [chance.choice([0, 1, 30, 80 if sizes else 40]) for _ in ways]
        return epochs_of(chance, around["columns"], sizes_of, 60, nulls=nulls, huge=huge, spread=spread)

    source = from_epochs(epochs(), around["columns"], name="rows").on_error(around["policy"])
    even = source.filter(lambda t: t.n is None or t.n % 2 == 0)
    stream = joined(
        (source, even if one else from_epochs(epochs(), around["columns"], name="more")), by, sizes, lateness
    )
    if again:  # joined with windows over what comes out
        stream = stream.aggregate(by="k", window=ab.event_time("at2", 4), n=agg.count(), last=agg.max("name2"))
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS[:3]),
    count=st.sampled_from([1, 1, 2, 5]),
    order=st.lists(st.sampled_from(["n", "at", "name", "small", "x"]), min_size=1, max_size=3, unique=True),
    form=st.sampled_from([{}, {}, {"rank": "place"}, {"change": "what"}]),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    null_key=st.sampled_from(["keep", "drop"]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_top(tmp_path_factory, ways, by, count, order, form, nulls, huge, null_key, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 100, nulls=nulls, huge=huge)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    down = [chance.random() < 0.5 for _ in order]
    stream = source.top(count, order, by=by, descending=down, null_key=null_key, **form)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from([*KEYS, ["n", "name"], ["k", "s", "small"]]),
    within=st.sampled_from([None, None, ab.count(1), ab.count(2), ab.count(3), ab.delta("n", 2), ab.time(1)]),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    null_key=st.sampled_from(["keep", "keep", "drop", "fail"]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_deduplicate(tmp_path_factory, ways, by, within, nulls, huge, null_key, around, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 100, nulls=nulls, huge=huge)
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    stream = source.deduplicate(by=by, within=within, null_key=null_key)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, clocks_ms=[1_000_000, 1_000_500, 1_002_000], **around)
    assert found == expected


FILTERS = [
    lambda t: t.n < 3,
    lambda t: -2 <= t.n < 5 and t.small != 0,
    lambda t: t.at < t.later,
    lambda t: t.at <= t.later <= t.at and t.n >= t.small,
    lambda t: t.at == t.later or t.n == 2,
    lambda t: t.name == "b",
]
DAYS = [datetime.date(1969, 12, 30) + datetime.timedelta(days=day) for day in range(2)]
KINDS = {COLUMNS: "key long, kind string", OTHERS: "key int, kind date", STRICT: "key boolean, kind string"}
TABLES = {
    columns: [
        (key, name, f"{key}{name}", None if key % 2 else key / 2)
        for key in (range(4) if columns != STRICT else (False, True))
        for name in (("", "a") if columns != OTHERS else DAYS)
    ]
    for columns in KINDS
}


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    test=st.sampled_from(FILTERS),
    how=st.sampled_from(["left", "inner"]),
    computed=st.booleans(),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_filters_and_tables(tmp_path_factory, ways, test, how, computed, nulls, huge, around, seed):
    chance = random.Random(seed)
    columns = around["columns"]
    epochs = epochs_of(chance, columns, [chance.choice([1, 40]) for _ in ways], 40, nulls=nulls, huge=huge)
    source = from_epochs(epochs, columns, name="rows").on_error(around["policy"])
    start = START.replace(tzinfo=None) if columns == OTHERS else START
    later = (lambda t: t.at if t.n == 2 else start, "timestamp_ntz" if columns == OTHERS else "timestamp")
    kept = source.select("*", later=later).filter(test)
    own = (lambda t: t.k if t.n is None or t.n > 0 else None, "key")
    by = [own if computed and columns == COLUMNS else ("k", "key"), ("s", "kind")]
    enriched = kept.enrich(TABLES[columns], by=by, how=how, schema=f"{KINDS[columns]}, text string, half double")
    stream = enriched.select("k", "s", "at", "text", "half", "later", "extra").top(1, "at", by="s")
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    by=st.sampled_from(KEYS),
    names=st.lists(st.sampled_from(USUAL), min_size=1, max_size=4, unique=True)
    | st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=3, unique=True),
    bounds=st.sets(st.sampled_from(["begin", "end"])),
    size=st.sampled_from([1, 3]),
    nulls=st.sampled_from([0.0, 0.0, 0.2, NULL_KEYS]),
    huge=st.sampled_from([0.0, 0.0, 0.02]),
    null_key=st.sampled_from(["keep", "drop"]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_windows_of_the_clock(tmp_path_factory, ways, by, names, bounds, size, nulls, huge, null_key, around, seed):
    chance = random.Random(seed)
    ways = [*ways, *ways]
    sizes = [chance.choice([0, 1, 30, 80]) for _ in ways]
    epochs = epochs_of(chance, around["columns"], sizes, 80, nulls=nulls, huge=huge)
    clocks = [1_000_000]
    for _ in ways:
        clocks.append(clocks[-1] + chance.choice([0, 500, 1000, 2500]))
    source = from_epochs(epochs, around["columns"], name="rows").on_error(around["policy"])
    chosen = {name: AGGREGATIONS[name] for name in names} | {name: BOUNDS[name] for name in bounds}
    stream = source.aggregate(by=by, window=ab.time(size), null_key=null_key, **chosen)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, clocks_ms=clocks, **around)
    assert found == expected


def test_windows_that_do_not_close_take_no_memory(monkeypatch):
    """Each tuple is in 200,000 windows, of which 10 close; with more than fit at once tuples are taken singly."""
    epochs = [[(key, at) for at in range(10 * part, 10 * part + 10) for key in range(10)] for part in range(2)]
    timed = from_epochs(epochs, "k long, at long", name="rows").event_time("at", lateness=0)
    window = ab.sliding(ab.event_time("at", 200_000), every=1)
    stream = timed.aggregate(by="k", window=window, n=agg.count(), end=agg.window_end())
    expected = [repr(row) for row in stream.run_sequential()]
    assert len(expected) == 190
    together = []
    made = window_columns.WindowColumns.made

    def noted(*arguments):
        found = made(*arguments)
        together.append(found is not None)
        return found

    monkeypatch.setattr(window_columns.WindowColumns, "made", noted)
    tracemalloc.start()
    try:
        assert [repr(row) for row in run_parallel(stream, channels=1)] == expected
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert set(together) == {True} and most < 50_000_000
    monkeypatch.setattr(window_columns, "_PAIRS_MAX", 1000)
    assert [repr(row) for row in run_parallel(stream, channels=1)] == expected
    assert set(together) == {True, False}


def test_aggregates_are_computed_over_columns(tmp_path, taken):
    epochs = [list(rows(random.Random(at), 200, 200 * at)) for at in range(3)]
    source = from_epochs(epochs, COLUMNS, name="rows")
    programs = {
        "running": source.aggregate(by="k", window=ab.running(), **{name: AGGREGATIONS[name] for name in USUAL}),
        "latest": source.aggregate(
            by="k", window=ab.running(latest_of=["n", "name"]), **{name: AGGREGATIONS[name] for name in UPDATES}
        ),
        "windows": windows(source, ["k", "s"], (6, 2), FOLDED, lateness=20, **BOUNDS),
        "sessions": source.event_time("at", lateness=20).aggregate(
            by=["k", "s"], window=ab.sessions("at", 2), **{name: AGGREGATIONS[name] for name in FOLDED}, **BOUNDS
        ),
        "clock": source.aggregate(by="k", window=ab.time(5), **{name: AGGREGATIONS[name] for name in USUAL}),
        "top": source.top(3, ["n", "name"], by="k", descending=[True, False], rank="place"),
        "joins": joined((source, source.filter(lambda t: t.n > 4)), ("k", "k2"), (1, 1)),
        "seen": source.deduplicate(by=["k", "n", "name"]),
    }
    for what, stream in programs.items():
        expected = outcome(lambda stream=stream: stream.run_sequential(ends=True))
        assert len(expected) > (0 if what == "clock" else 100)
        for columns in ((), OVER_COLUMNS):
            folder = str(tmp_path / f"{what} {len(columns)}")
            before = taken[what]
            assert outcome(lambda: in_parallel(stream, folder, [(2, columns, 1)] * 3)) == expected  # noqa: B023
            assert (taken[what] > before) is bool(columns)


@pytest.mark.parametrize("what", ["running", "windows", "sessions", "clock", "top", "seen"])
@pytest.mark.parametrize("by", [["s"], ["k", "s"], ["s", "n"]])
def test_a_null_is_a_key_like_others(tmp_path, taken, what, by):
    """Over columns and tuple by tuple: the same rows, state and counts of null keys."""
    epochs = [list(rows(random.Random(at), 90, 90 * at, nulls=NULL_KEYS)) for at in range(3)]
    timed = from_epochs(epochs, COLUMNS, name="rows").event_time("at", lateness=20)
    window = {"running": ab.running(), "windows": ab.event_time("at", 5), "sessions": ab.sessions("at", 2)}
    window["clock"] = ab.time(2)
    clocks = [1_000_000, 1_001_000, 1_002_000]
    if what in window:
        chosen = {"many": agg.count(), "most": agg.max("name"), "sum": agg.sum("small")}
        stream = timed.aggregate(by=by, window=window[what], **chosen)
    else:
        stream = timed.top(2, ["n", "at"], by=by) if what == "top" else timed.deduplicate(by=by)
    found = []
    for columns in (set(), {{"seen": "top", "clock": "windows"}.get(what, what)}):
        folder = str(tmp_path / f"{len(columns)}")
        written, anomalies = {}, []
        for number in range(len(epochs)):
            run = ParallelRun(stream, folder, channels=2, written=written, columns=columns, clocks_ms=clocks)
            run.run_epochs(number, number)
            anomalies += [each.anomalies for each in run.progress]
        state = state_of(stream, folder)
        run.end()
        found.append(([repr(row) for row in run.output], state, anomalies))
    assert taken[what] > 0
    assert found[0] == found[1]
    assert "null_key" in repr(found[0][2]) and len(found[0][1]) > 4
    assert found[1][0] == outcome(lambda: stream.run_sequential(ends=True, clocks_ms=clocks))


def test_keys_that_are_columns_are_run_again(tmp_path, taken):
    """What `verify` takes down of a key is there when the key is a row of columns by the end of the epoch."""
    source = from_epochs([list(rows(random.Random(at), 60, 60 * at)) for at in range(3)], COLUMNS, name="rows")
    programs = {
        "running": source.aggregate(by=["k", "s"], window=ab.running(), most=agg.max("n")),
        "latest": source.aggregate(by="k", window=ab.running(latest_of="name"), sum=agg.sum("n")),
        "top": source.top(1, "n", by="k"),
    }
    for what, stream in programs.items():
        run = ParallelRun(stream, str(tmp_path / what), channels=2, verify=0.5)
        run.run_epochs()
        assert taken[what] > 0
        assert [repr(row) for row in run.output] == [repr(row) for row in stream.run_sequential()]


def test_an_aggregation_that_leaves_tuples_out_skips_those_that_fail(tmp_path):
    """The functions of an aggregate are found below the methods that an error policy puts around it."""
    source = from_epochs([list(rows(random.Random(5), 90, 0, nulls=0.2))] * 2, COLUMNS, name="rows").on_error("skip")
    stream = source.aggregate(by="s", window=ab.running(), lows=AGGREGATIONS["lows"], many=agg.count())
    run = ParallelRun(stream, str(tmp_path), channels=2)
    run.run_epochs()
    assert [repr(row) for row in run.output] == [repr(row) for row in stream.run_sequential()]
    assert 0 < len(run.output) < 180
