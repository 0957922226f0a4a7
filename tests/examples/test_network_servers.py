"""The network monitoring kernel of *Safe*."""

import itertools

import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from anabranch.papers.safe_regions import Rules
from examples.network_servers import ENTRIES, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

ROWS = generate(6000, seed=1)


def expected(rows, ratio=4.0, limit=4, span=300.0):
    """Two passes: first every entry's ratio, server by server; then the windows of every user by themselves."""
    entries = rows["entries"]
    unusual = []
    for server in {entry["server"] for entry in entries}:
        usual = None
        for at, entry in enumerate(entries):
            if entry["server"] == server:
                if usual and entry["sent"] / usual > ratio:
                    unusual.append((at, entry))
                usual = entry["sent"] if not usual else usual + 0.05 * (entry["sent"] - usual)
    unusual.sort(key=lambda pair: pair[0])
    closed = []
    for user in {entry["user"] for _, entry in unusual}:
        window = []
        for at, entry in (pair for pair in unusual if pair[1]["user"] == user):
            if window and entry["time"] - window[0]["time"] > span:
                total = list(itertools.accumulate(each["sent"] for each in window))[-1]
                closed.append((at, (user, len(window), total, window[0]["time"])))
                window = []
            window.append(entry)
    return [window for _, window in sorted(closed) if window[1] >= limit]


def test_users_with_many_unusual_entries_in_five_minutes_are_suspicious():
    found = built(program, ENTRIES, ROWS).run_sequential()
    assert len(found) > 10
    assert [tuple(row) for row in found] == expected(ROWS)


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(program, ENTRIES, ROWS, epochs=4), channels)


def test_the_regions_are_those_of_the_paper():
    """*Safe*: "The left parallel region is partitioned by the server, while the right parallel region is partitioned
    by users, with a shuffle in the middle." """
    left, right = paper_plan(built(program, ENTRIES, ROWS)).regions
    assert left.operators == ("compare", "unusual") and left.key == ("server",)
    assert right.operators == ("behaviour", "suspicious") and right.key == ("user",)
    assert left.routing is right.routing is Routing.HASH
    assert (left.first, left.last) == (Joint.SPLIT, Joint.SHUFFLE)
    assert (right.first, right.last) == (Joint.SHUFFLE, Joint.MERGE)
    assert left.ordering is right.ordering is Strategy.STRICT, "the filters drop tuples: gaps, hence pulses"


def test_with_parallel_sources_and_sinks_the_plan_of_the_paper_has_only_routing_to_do():
    """*Safe*: "because there are parallel sources on the left and parallel sinks on the right, tuples are *not* ordered
    in this application. The compiler recognizes this and informs the runtime that it has only routing
    responsibilities." """
    rules = Rules(partitioned={"entries": ("server",)}, parallel_sinks=frozenset({"suspicious"}))
    left, right = paper_plan(built(program, ENTRIES, ROWS), rules).regions
    assert left.operators == ("entries", "compare", "unusual") and left.key == ("server",)
    assert right.operators == ("behaviour", "suspicious") and right.key == ("user",)
    assert (left.first, left.last) == (Joint.PARALLEL_SOURCE, Joint.SHUFFLE)
    assert (right.first, right.last) == (Joint.SHUFFLE, Joint.PARALLEL_SINK)
    assert right.ordering is None


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(program, ENTRIES, generate(3000, seed=5), epochs=2, session=ab.session(spark))
    found = stream.run_sequential()
    assert found and exact(on_spark(stream)) == exact(found)
