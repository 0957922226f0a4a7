"""The Finance kernel."""

import math

import pytest

from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from examples.finance import LINES, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

ROWS = generate(3000, seed=3)


def expected(rows, window=20):
    """Both feeds sorted by time, trades first among equals; for each quote its symbol's last trades before it."""
    trades = [(int(at), symbol, float(price), int(size)) for at, symbol, price, size in fields(rows["trades"])]
    quotes = [(int(at), symbol, float(ask), int(size)) for at, symbol, _, ask, size in fields(rows["quotes"])]
    trades = [trade for trade in trades if trade[3] > 0]
    quotes = [quote for quote in quotes if quote[3] > 0]
    found = []
    # Who merges two streams cannot let a quote go before the next trade has come: it might be earlier.
    horizon = trades[-1][0]
    for at, symbol, ask, size in quotes:
        if at >= horizon:
            break
        last = [trade for trade in trades if trade[1] == symbol and trade[0] <= at][-window:]
        if not last:
            continue
        vwap = sum(price * volume for _, _, price, volume in last) / sum(volume for _, _, _, volume in last)
        if vwap > ask:
            found.append((at, symbol, ask, vwap, math.exp(vwap - ask) * size))
    return found


def fields(lines):
    return [each["line"].split(",") for each in lines]


def test_bargains_are_quotes_below_the_average_of_the_trades_before_them():
    found = built(program, LINES, ROWS).run_sequential()
    assert len(found) > 100
    assert [tuple(row) for row in found] == expected(ROWS)


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(program, LINES, ROWS, epochs=4), channels)


def test_epochs_do_not_change_what_is_found():
    assert exact(built(program, LINES, ROWS, epochs=7).run_sequential()) == exact(
        built(program, LINES, ROWS).run_sequential()
    )


def test_the_regions_are_those_of_the_papers():
    """*Safe*: "The graph has three parallelizable operators. Only the Combine operator, which merges its two input
    streams in timestamp order, is not parallel." *Elastic*: "There are three parallel regions in this application,
    two of which are stateless and one is partitioned stateful." """
    plan = paper_plan(built(program, LINES, ROWS))
    trades, quotes, bargains = plan.regions
    assert trades.operators == ("parse_trades", "real_trades")
    assert quotes.operators == ("parse_quotes", "real_quotes")
    assert bargains.operators == ("bargains",)
    for region in (trades, quotes):
        assert region.stateless and region.routing is Routing.ROUND_ROBIN
        assert (region.first, region.last) == (Joint.SPLIT, Joint.MERGE)
        assert region.ordering is Strategy.STRICT
    assert not bargains.stateless and bargains.key == ("symbol",) and bargains.routing is Routing.HASH
    assert (bargains.first, bargains.last) == (Joint.SPLIT, Joint.MERGE)
    combine = plan.operator("combine")
    assert combine.region is None and combine.blocked


@pytest.mark.spark
def test_on_spark(spark):
    import anabranch as ab

    rows = generate(1200, seed=5)
    stream = built(program, LINES, rows, epochs=2, session=ab.session(spark))
    assert exact(on_spark(stream)) == exact(stream.run_sequential())
