"""The Twitter NLP kernel."""

import collections

import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from examples.twitter_nlp import FILLERS, TWEETS, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

ROWS = generate(600, seed=2)


def expected(rows):
    """Word by word, letter by letter: no regular expression in common with the program."""
    found = []
    for row in rows["tweets"]:
        counts = collections.Counter()
        for piece in row["text"].split():
            if piece.startswith(("http", "@", "&")):
                continue
            letters = piece.strip("!?…").lower()
            for ending in ("ing", "ed", "es", "s"):
                if letters.endswith(ending) and len(letters) >= len(ending) + 4:
                    letters = letters.removesuffix(ending)
                    break
            if letters and letters not in FILLERS:
                counts[letters] += 1
        found += [(row["id"], word, len(word), count) for word, count in counts.items()]
    return found


def test_the_words_of_each_tweet_come_with_length_and_frequency():
    found = built(program, TWEETS, ROWS).run_sequential()
    assert len(found) > 1000
    assert [tuple(row) for row in found] == expected(ROWS)


def test_a_tweet_that_repeats_a_word_counts_it():
    rows = {"tweets": [{"id": 1, "text": "Rain, rains and RAINED https://t.co/rain @rain"}]}
    assert built(program, TWEETS, rows).run_sequential() == [(1, "rain", 4, 3)]


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(program, TWEETS, ROWS, epochs=4), channels)


def test_the_region_is_that_of_the_papers():
    """*Safe*: "The stream graph has a parallel region with a single, stateless, *prolific* operator." *Elastic*: "It
    contains a single stateless parallel region." """
    (region,) = paper_plan(built(program, TWEETS, ROWS)).regions
    assert region.operators == ("analyse",)
    assert region.stateless and region.key == () and region.routing is Routing.ROUND_ROBIN
    assert (region.first, region.last) == (Joint.SPLIT, Joint.MERGE)
    assert region.ordering is Strategy.RELAXED, "prolific: relaxed sequence numbers and pulses (Table 1)"


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(program, TWEETS, generate(400, seed=5), epochs=2, session=ab.session(spark))
    assert exact(on_spark(stream)) == exact(stream.run_sequential())
