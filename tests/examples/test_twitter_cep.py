"""The Twitter CEP kernel."""

import html
import re

import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from examples.twitter_cep import LINES, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

ROWS = generate(1500, seed=4)


def expected(rows):
    """How long each author has said the same; at five the count begins anew."""
    streaks = {}
    found = []
    for row in rows["lines"]:
        author, contents, at = re.fullmatch(
            r"<tweet><author>(.*)</author><contents>(.*)</contents><timestamp>(.*)</timestamp></tweet>", row["line"]
        ).groups()
        words = html.unescape(contents).split()
        tags = " ".join(sorted({word.lower() for word in words if word.startswith("#")}))
        said, times = streaks.get(author, (None, []))
        times = [*times, int(at)] if tags == said else [int(at)]
        if tags and len(times) == 5:
            found.append((author, tags, times[0], times[-1]))
            times = []
        streaks[author] = (tags, times)
    return found


def test_five_consecutive_tweets_with_the_same_tags_are_found():
    found = built(program, LINES, ROWS).run_sequential()
    assert len(found) > 50
    assert [tuple(row) for row in found] == expected(ROWS)


def test_four_are_not_enough_and_another_tweet_in_between_breaks_the_sequence():
    def tweets(*contents):
        return {
            "lines": [
                {"line": f"<tweet><author>a</author><contents>{each}</contents><timestamp>{at}</timestamp></tweet>"}
                for at, each in enumerate(contents)
            ]
        }

    same = ["#x so", "#X then", "well #x", "#x", "#x #x"]
    assert built(program, LINES, tweets(*same)).run_sequential() == [("a", "#x", 0, 4)]
    assert built(program, LINES, tweets(*same[:4])).run_sequential() == []
    assert built(program, LINES, tweets(*same[:2], "#y", *same[2:])).run_sequential() == []
    assert built(program, LINES, tweets("", "", "", "", "")).run_sequential() == []


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(program, LINES, ROWS, epochs=4), channels)


def test_the_regions_are_those_of_the_paper():
    """*Safe*: "Both Parse and Match are parallelized, with a shuffle to partition by author before Match. […] since
    there is no parallel source or sink, ordering matters." """
    plan = paper_plan(built(program, LINES, ROWS))
    parse, match = plan.regions
    assert parse.operators == ("parse",) and parse.stateless
    assert (parse.first, parse.last) == (Joint.SPLIT, Joint.SHUFFLE)
    assert parse.ordering is Strategy.SEQUENCE, "round-robin would be enough, but who is shuffled must be numbered"
    assert match.operators == ("match",) and match.key == ("author",) and match.routing is Routing.HASH
    assert (match.first, match.last) == (Joint.SHUFFLE, Joint.MERGE)
    # At most one match ends with a tuple, but what emit makes of it could be a list: the compiler does not read it.
    assert match.ordering is Strategy.RELAXED


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(program, LINES, generate(800, seed=5), epochs=2, session=ab.session(spark))
    assert exact(on_spark(stream)) == exact(stream.run_sequential())
