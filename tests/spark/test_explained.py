"""What explain says of a query is what Spark ran: stages, tasks, shuffles from Spark's own status; and the names."""

import functools
import json

import pytest

import anabranch as ab
from anabranch import agg, count, tumbling
from anabranch.errors import ProgramError
from examples import (
    finance,
    network_breakins,
    network_servers,
    opmon,
    pagerank,
    radio_imaging,
    twitter_cep,
    twitter_nlp,
)
from tests.examples.checks import built, exact

pytestmark = pytest.mark.spark

COLUMNS = "k long, l long, x long"
ROWS = [(n % 5, n % 3, n) for n in range(60)]


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield t.but(x=self.seen)


def rows(session, name="source", at=0):
    return session.from_rows(ROWS[at:], COLUMNS, name=name)


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


def kernel(module, schemas, size, session, **more):
    return built(functools.partial(module.program, **more), schemas, module.generate(size, seed=5), session=session)


PROGRAMS = {
    "opmon": functools.partial(kernel, opmon, opmon.USAGE, 300),
    "finance": functools.partial(kernel, finance, finance.LINES, 300),
    "twitter_nlp": functools.partial(kernel, twitter_nlp, twitter_nlp.TWEETS, 60),
    "twitter_cep": functools.partial(kernel, twitter_cep, twitter_cep.LINES, 200),
    "pagerank": functools.partial(kernel, pagerank, pagerank.BLOCKS, 30, tolerance=0.2),
    "network_servers": functools.partial(kernel, network_servers, network_servers.ENTRIES, 300),
    "network_breakins": functools.partial(kernel, network_breakins, network_breakins.LINES, 300),
    "radio_imaging": functools.partial(
        kernel, radio_imaging, radio_imaging.COORDINATES, 2, count=2, min_workers=2, max_workers=2
    ),
    "isolated": isolated,
    "colocated": colocated,
    "several": several,
}


def spark_jobs(spark, query):
    """The tasks of each stage of each job of a query, as Spark's own status has them."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in sorted(tracker.getJobIdsForGroup(query.runId))]
    stages = [[tracker.getStageInfo(number) for number in sorted(job.stageIds)] for job in jobs]
    assert all(stage is not None for job in stages for stage in job), "Spark has forgotten a stage"
    return [[stage.numTasks for stage in job] for job in stages]


def explained(query, capsys):
    capsys.readouterr()
    query.explain("json")
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_explain_says_is_what_spark_ran(spark, tmp_path, capsys, name):
    stream = PROGRAMS[name](ab.session(spark))
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).option("channels", 3)
    mergers = 2 if name in ("colocated", "opmon") else 0
    if mergers:
        query = (
            writer.option("mergers", mergers).format("parquet").trigger(availableNow=True).start(str(tmp_path / "out"))
        )
    else:
        query = writer.format("memory").queryName(f"explained_{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    said = explained(query, capsys)
    jobs = spark_jobs(spark, query)
    tasks = [depth["tasks"] for depth in said["depths"]] + [mergers] * bool(mergers)
    # Where tuples are fed back there are several epochs; the sources of the last may have had other pieces.
    assert jobs and all(len(job) - 1 == said["shuffles"] and job[1:] == tasks[1:] for job in jobs), (jobs, tasks)
    assert jobs[-1] == tasks
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
    steps = sorted(operator for stage in said["stages"] for operator in stage["operators"])
    assert steps == sorted(node.name for stage in query.plan.layout.stages for node in query.plan.layout.nodes(stage))
    assert said["mergers"] == mergers and {each["merged"] for each in said["outputs"]} == {
        "by mergers" if mergers else "in the driver"
    }
    if not mergers:
        assert exact(stream.schema.rows(query.sink.table().columns)) == exact(stream.run_sequential())
