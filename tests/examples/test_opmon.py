"""OpMon, the example that *Elastic* begins with."""

import functools

import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from examples.opmon import USAGE, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan


def sample(count, seed):
    """Every fifth record: some minutes of traffic, without a hundred records for each second."""
    return {"usage": generate(count * 5, seed)["usage"][::5]}


ROWS = sample(4_000, seed=8)
over_500 = functools.partial(program, threshold=500.0)


def expected(rows, threshold):
    """The records of each application by themselves, cut where a record is more than a minute after the first."""
    closed = []
    records = list(enumerate(rows["usage"]))
    for app in {record["app"] for _, record in records}:
        window = []
        for at, record in (each for each in records if each[1]["app"] == app):
            if window and record["time"] - window[0]["time"] > 60:
                flow = functools.reduce(lambda total, each: total + each["flow"], window[1:], window[0]["flow"])
                closed.append((at, (app, flow, window[-1]["time"])))
                window = []
            window.append(record)
    return [window for _, window in sorted(closed) if window[1] > threshold]


def test_minutes_with_more_flow_than_the_threshold_are_alarms():
    found = built(over_500, USAGE, ROWS).run_sequential()
    assert len(found) > 20
    assert [tuple(row) for row in found] == expected(ROWS, 500.0)


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(over_500, USAGE, ROWS, epochs=4), channels)


def test_the_region_is_that_of_the_paper():
    """*Elastic*: "the parallel region consists of the Aggregate and the Filter operators. It is a partitioned stateful
    parallel region […] The merger performs a re-ordering operation using sequence numbers […] this particular parallel
    region uses *pulses*." """
    (region,) = paper_plan(built(program, USAGE, ROWS)).regions
    assert region.operators == ("minutes", "above")
    assert not region.stateless and region.key == ("app",) and region.routing is Routing.HASH
    assert (region.first, region.last) == (Joint.SPLIT, Joint.MERGE)
    assert region.ordering is Strategy.STRICT


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(over_500, USAGE, sample(3_000, seed=5), epochs=2, session=ab.session(spark))
    found = stream.run_sequential()
    assert found and exact(on_spark(stream)) == exact(found)
