"""Every operator in parallel equals the operator on one thread: values, order, and what was counted."""

import collections
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import agg, count, delta, event_time, punctuation, running, sliding, step, time, tumbling
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.operators.epoch_context import take_anomalies
from anabranch.testing import ParallelRun

COLUMNS = "k string, l long, at long, x double"
TABLE = "id string, then long, y long"
keys = st.sampled_from(["a", "a", "b", "c", "d", None])
rows = st.tuples(keys, st.integers(0, 3), st.integers(0, 12), st.one_of(st.none(), st.floats(-9, 9)))
updates = st.tuples(keys, st.integers(0, 12), st.integers(0, 9))
epochs = st.lists(st.tuples(st.lists(rows, max_size=12), st.lists(updates, max_size=6)), min_size=1, max_size=4)
everything = {
    "n": agg.count(),
    "total": agg.sum("x"),
    "whole": agg.sum("at"),
    "low": agg.min("x"),
    "first": agg.first("x"),
    "all": agg.collect("x"),
    "most": agg.custom(lambda: 0, lambda a, v: max(a, v), lambda a: a, "long", "at"),
}
climb = [
    step("low", lambda t: t.at < 6),
    step("more", lambda t, m: t.at >= m.low[0].at).one_or_more(),
    step("high", lambda t: t.at > 6),
]


TOP = agg.top("at", 2, by="x")


def routed(stream, table):
    odd, rest = stream.split(lambda t: t.l % 2)
    return odd.deduplicate(by=["k", "l"], within=count(2)).union(rest.sort("at", window=count(2), key="k"))


PROGRAMS = {
    "sliding": lambda s, t: s.aggregate(by="k", window=sliding(3, 2), **everything),
    "sliding by delta": lambda s, t: s.aggregate(by="k", window=sliding(delta("at", 4), delta("at", 2)), **everything),
    "event time": lambda s, t: s.aggregate(by="k", window=sliding(event_time("at", 4, lateness=2), 2), **everything),
    "time": lambda s, t: s.aggregate(by="k", window=time(1), **everything),
    "sliding time": lambda s, t: s.aggregate(by="k", window=sliding(time(2), time(1)), **everything),
    "punctuation": lambda s, t: s.punctuate(lambda t: t.l == 0).aggregate(by="k", window=punctuation(), **everything),
    "running": lambda s, t: s.aggregate(by="k", window=running(), **everything),
    "running for a time": lambda s, t: s.aggregate(by="k", window=running(), ttl=1, d=agg.distinct("l"), top=TOP),
    "count for a time": lambda s, t: s.aggregate(by="k", window=tumbling(3), ttl=1, m=agg.max("l")),
    "enrich for a time": lambda s, t: s.enrich(t, by=("k", "id"), ttl=1),
    "enrich that waits": lambda s, t: s.enrich(t, by=("k", "id"), wait=True),
    "whole stream": lambda s, t: s.aggregate(by=None, window=sliding(3, 2), **everything),
    "sort": lambda s, t: s.sort(["x", "at"], window=count(2), key=["k", "l"]),
    "sort all": lambda s, t: s.sort("at", window=delta("at", 3), late="drop"),
    "sort by punctuation": lambda s, t: s.punctuate(lambda t: t.l == 0).sort("x", window=punctuation(), key="k"),
    "deduplicate": lambda s, t: s.deduplicate(by=["k", "l"]),
    "deduplicate within": lambda s, t: s.deduplicate(by="k", within=time(2)),
    "match": lambda s, t: s.match(by="k", pattern=climb, within=delta("at", 9), contiguity="relaxed"),
    "join": lambda s, t: s.join(t, by=("k", "id"), window=count(2), how="outer"),
    "join by time": lambda s, t: s.join(t, by=("k", "id"), window=(delta("at", 2), delta("then", 3)), how="left"),
    "enrich": lambda s, t: s.enrich(t, by=("k", "id"), how="inner"),
    "static enrich": lambda s, t: s.enrich({"a": 1, "b": 2}, by="k", schema="k string, z long"),
    "combine": lambda s, t: s.combine(s.filter(lambda t: t.l > 1), on="at", by="k"),
    "combine all": lambda s, t: s.filter(lambda t: t.l > 1).combine(s, on="at"),
    "split and union": routed,
    "two in a row": lambda s, t: s.deduplicate(by=["k", "at"]).aggregate(by="k", window=sliding(2), n=agg.count()),
}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=15, deadline=None)
@given(epochs=epochs, channels=st.integers(1, 4), seed=st.integers(0, 10**6), step_ms=st.sampled_from([0, 600, 1500]))
def test_an_operator_in_parallel_is_the_operator_on_one_thread(name, epochs, channels, seed, step_ms):
    stream = from_epochs([each[0] for each in epochs], COLUMNS, name="stream")
    table = from_epochs([each[1] for each in epochs], TABLE, name="table")
    program = PROGRAMS[name](stream, table)
    clocks = [(at + 1) * step_ms for at in range(len(epochs))]
    take_anomalies()
    expected = [repr(row) for row in run_epochs([program._node], clocks).output]
    met = take_anomalies()
    with tempfile.TemporaryDirectory() as scratch:
        run = ParallelRun(program, scratch, channels=channels, seed=seed, clocks_ms=clocks)
        run.run_epochs()
    assert [repr(row) for row in run.output] == expected
    found = collections.Counter()
    for progress in run.progress:
        for operator, counts in progress.anomalies.items():
            found.update({(operator, what): number for what, number in counts.items()})
    assert found == met
