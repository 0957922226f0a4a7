"""What explain says of a query is what Spark ran: stages, tasks, shuffles from Spark's own status; and the names.

All examples are among the programs; those of one kind are outputs of one query, which costs one query's jobs.
"""

import dataclasses
import functools
import json
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import agg, count, tumbling
from anabranch.engine.driver import output_ways
from anabranch.errors import ProgramError
from examples import (
    airline,
    finance,
    network_breakins,
    network_servers,
    opmon,
    pagerank,
    radio_imaging,
    ten_jobs,
    twitter_cep,
    twitter_nlp,
)
from examples.nexmark import queries
from examples.nexmark.events import EVENTS, generate
from tests.examples.checks import built, exact
from tests.spark.ran import Ran

pytestmark = pytest.mark.spark

COLUMNS = "k long, l long, x long"
ROWS = [(n % 5, n % 3, n) for n in range(60)]


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield t.but(x=self.seen)


def rows(session, name="source", at=0, **more):
    return session.from_rows(ROWS[at:], COLUMNS, name=name, **more)


def isolated(session):
    """A stateless operator with a stage of its own, and one before and behind it."""
    heavy = rows(session).filter(lambda t: t.x != 3).map(lambda t: t.but(x=t.x + 1), name="heavy").isolate()
    return heavy.filter(lambda t: t.x % 7 != 0).process(Count(), by="k", schema=COLUMNS, name="count")


def twice(t):
    yield t
    yield t.but(x=-t.x)


def colocated(session):
    """A prolific operator behind the shuffle, so that half as many tuples cross it."""
    made = rows(session).filter(lambda t: t.x != 3).flat_map(twice, name="twice").colocate("count")
    return made.process(Count(), by="k", schema=COLUMNS, name="count")


def several(session):
    """Two sources and five regions, two of them side by side; one on one channel."""
    left, right = rows(session, "left").spread(name="dealt").map(lambda t: t.but(x=t.x * 2)), rows(session, "right", 7)
    counted = left.union(right).process(Count(), by="l", schema=COLUMNS, name="counted")
    sums = right.aggregate(by="k", window=tumbling(4), l=agg.first("l"), x=agg.sum("x"), name="sums")
    joined = counted.enrich(sums.map(lambda t: (t.l, t.x), schema="l long, total long"), by="l", name="joined")
    return joined.sort(["k", "x"], window=count(2), name="sorted")


def kernel(module, schemas, made, session, **more):
    return built(functools.partial(module.program, **more), schemas, made, session=session)


def kernels(session):
    """The kernels without loops."""
    several = {
        "opmon": (opmon, opmon.USAGE, 200),
        "finance": (finance, finance.LINES, 200),
        "nlp": (twitter_nlp, twitter_nlp.TWEETS, 40),
        "cep": (twitter_cep, twitter_cep.LINES, 150),
        "servers": (network_servers, network_servers.ENTRIES, 200),
        "breakins": (network_breakins, network_breakins.LINES, 200),
    }
    found = {
        name: kernel(module, schemas, module.generate(size, seed=5), session)
        for name, (module, schemas, size) in several.items()
    }
    names = ("number", "month", "minute", "plane", "carrier", "late", "flown")  # the real flights are not everywhere
    flights = [(n, 1 + n // 40, n * 9, f"N{n % 7}", "AA" if n % 3 else "DL", n % 5 - 1, 5) for n in range(120)]
    made = {"flights": [dict(zip(names, each, strict=True)) for each in flights]}
    return {**found, "airline": kernel(airline, airline.FLIGHTS, made, session)}


def jobs(session):
    """The ten jobs that people write first."""
    found = {name: make() for name, make in ten_jobs.JOBS.items()}
    for each in found.values():
        each._session = session
    return found


def nexmark(session):
    """All queries, of one source."""
    source = session.from_rows(generate(150, seed=5, per_second=20, disorder=15), EVENTS)
    return {name: queries.run(name, source) for name in queries.QUERIES}


def ranks(session):
    """State in columns: a join, running aggregates, the best of each key."""
    source = rows(session, rows_per_epoch=30)
    joined = source.join(source.select("k", other="x"), by="k", window=count(3), name="joined")
    sums = joined.aggregate(by="k", window=ab.running(), other=agg.sum("other"), name="sums")
    return sums.top(2, "other", by="k", name="best")


def in_parts(session):
    """A hot key may be worked on by several channels, for a shuffle more."""
    return rows(session).aggregate(by="k", window=tumbling(4), x=agg.sum("x"), name="sums")


def untouched(session):
    """Nothing but what is read, which whoever reads it writes."""
    return rows(session, rows_per_epoch=30).filter(lambda t: t.x != 3, name="most")


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, the options it runs with, and who is to put its outputs in order."""

    program: Callable
    options: dict = dataclasses.field(default_factory=dict)
    merged: str = "in the driver"
    is_small: bool = False
    """Whether an epoch of a few bytes counts as large: the driver then hands its work to tasks after the first."""


PROGRAMS = {
    "kernels": Case(kernels, {"channels": 2}),
    "jobs": Case(jobs, {"channels": 2}),
    "nexmark": Case(nexmark, {"channels": 2}),
    "pagerank": Case(
        lambda session: kernel(pagerank, pagerank.BLOCKS, pagerank.generate(30, seed=5), session, tolerance=0.2)
    ),
    "radio_imaging": Case(
        lambda session: kernel(
            radio_imaging,
            radio_imaging.COORDINATES,
            radio_imaging.generate(2, seed=5),
            session,
            count=2,
            min_workers=2,
            max_workers=2,
        )
    ),
    "isolated": Case(isolated, {"order": "none"}, "not at all: written where it is made"),
    "colocated": Case(colocated, {"mergers": 2}, "by mergers"),
    "several": Case(several, {"bundles": 16}),
    "ranks": Case(ranks, {}, "by mergers", is_small=True),
    "in parts": Case(in_parts, {"splitHotKeys": "on"}),
    "untouched": Case(untouched, {}, "by those who read its source", is_small=True),
}


def explained(query, capsys):
    capsys.readouterr()
    query.explain("json", extended=True)
    return json.loads(capsys.readouterr().out)


def start(streams, directory, options):
    """A query with an output for each stream, as files."""
    first, *others = (
        stream.writeStream.format("parquet").option("path", str(directory / name)) for name, stream in streams.items()
    )
    order = {"order": options.pop("order")} if "order" in options else {}
    for other in others:
        first.also(other)
    first.options(checkpointLocation=str(directory / "checkpoint"), **order, **options)
    return first.trigger(availableNow=True).start()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_explain_says_is_what_spark_ran(spark, tmp_path, capsys, monkeypatch, name):
    case = PROGRAMS[name]
    ran = Ran(monkeypatch, spark)
    if case.is_small:
        monkeypatch.setattr(output_ways, "MERGED_BYTES", 1)
        monkeypatch.setattr(output_ways, "PIECES_BYTES", 1)
    made = case.program(ab.session(spark))
    streams = made if isinstance(made, dict) else {"out": made}
    query = start(streams, tmp_path, {"channels": 3, **case.options})
    query.awaitTermination()
    said = explained(query, capsys)
    mergers = {"by mergers": 2}.get(case.merged, 0)
    tasks = [depth["tasks"] for depth in said["depths"]] + [mergers] * bool(mergers)
    epochs = ran.epochs(query)
    assert epochs and epochs[-1] == tasks and len(tasks) - 1 == said["shuffles"]
    if not case.is_small:
        # Where tuples are fed back there are several epochs; the sources of the last may have had other pieces.
        assert all(epoch[1:] == tasks[1:] for epoch in epochs), (epochs, tasks)
    progress = query.lastProgress
    regions = {stage["region"]: stage["channels"] for stage in said["stages"] if stage["region"] is not None}
    assert regions == dict(progress["channels"])
    assert regions == {region.name: region.channels for region in query.regions}
    kinds = {stage["region"]: stage["kind"] for stage in said["stages"]}
    for region in query.regions:
        if kinds[region.name] == "single":
            with pytest.raises(ProgramError, match="one channel"):
                query.rescale(region.name, 2)
        else:
            query.rescale(region.name, 2)
    steps = sorted((operator, stage["number"]) for stage in said["stages"] for operator in stage["operators"])
    running = query._runner.current.running().layout
    assert steps == sorted((node.name, stage.number) for stage in running.stages for node in running.nodes(stage))
    assert steps == sorted((code["operator"], code["stage"]) for code in said["code"])
    assert said["mergers"] == mergers and {each["merged"] for each in said["outputs"]} == {case.merged}
    assert all(bool(each["through_driver"]) == (case.merged == "in the driver") for each in said["outputs"])
    for output, stream in streams.items():
        parts = sorted((tmp_path / output).glob("part-*"))
        found = [row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)]
        meant = stream.run_sequential()
        if "order" in case.options:
            found, meant = sorted(found), sorted(meant)
        assert exact(found) == exact(meant), output
