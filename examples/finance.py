"""Finance, the kernel of both papers: bargains in a market, found by the volume-weighted average price.

    trades ─ parse ─ filter ─┐
                             combine (in order of time) ─ bargains {symbol} ─►
    quotes ─ parse ─ filter ─┘

Two feeds come in as lines of text. They are merged by time, so that each quote is compared with exactly the trades
that were made before it; a quote whose asking price lies below the average of its symbol's last trades is a bargain,
the better the further below and the more there is to buy.

    python examples/finance.py --records 50000 --channels 4
"""

from __future__ import annotations

import collections
import math
import random
from typing import Any, NamedTuple

import anabranch as ab

LINES = {"trades": "line string", "quotes": "line string"}


class Event(NamedTuple):
    """A trade or a quote: they need the same columns to be one stream."""

    time: int
    symbol: str
    is_trade: bool
    price: float
    size: int


class Bargain(NamedTuple):
    """A quote that is worth more than it costs."""

    time: int
    symbol: str
    ask: float
    vwap: float
    index: float


def parse_trade(t: Any) -> Event:
    """``time,symbol,price,volume``"""
    time, symbol, price, volume = t.line.split(",")
    return Event(int(time), symbol, True, float(price), int(volume))


def parse_quote(t: Any) -> Event:
    """``time,symbol,bid,ask,size``"""
    time, symbol, _, ask, size = t.line.split(",")
    return Event(int(time), symbol, False, float(ask), int(size))


class Bargains(ab.Operator):
    """Keeps the last trades of a symbol, and compares its quotes with their average."""

    window: int = 20
    trades: collections.deque[tuple[float, int]] = ab.state(factory=collections.deque)

    def process(self, t: Any) -> Any:
        if t.is_trade:
            self.trades.append((t.price, t.size))
            if len(self.trades) > self.window:
                self.trades.popleft()
        elif self.trades:
            paid = sum(price * volume for price, volume in self.trades)
            vwap = paid / sum(volume for _, volume in self.trades)
            if vwap > t.price:
                yield Bargain(t.time, t.symbol, t.price, vwap, math.exp(vwap - t.price) * t.size)


def program(trades: ab.Stream, quotes: ab.Stream) -> ab.Stream:
    """The bargains, in order of time."""
    made = trades.map(parse_trade, name="parse_trades").filter(lambda t: t.size > 0, name="real_trades")
    offered = quotes.map(parse_quote, name="parse_quotes").filter(lambda t: t.size > 0, name="real_quotes")
    market = made.combine(offered, on="time", name="combine")
    return market.process(Bargains(), by="symbol", schema=Bargain, name="bargains")


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """A morning at an exchange: prices wander, few symbols have most of the trades, twice as many quotes as trades."""
    chance = random.Random(seed)
    symbols = [a + b + c for a in "ABKX" for b in "AEO" for c in "LNRT"]
    weights = [1 / (rank + 1) for rank in range(len(symbols))]
    prices = {symbol: chance.uniform(5, 200) for symbol in symbols}
    found: dict[str, list[dict[str, Any]]] = {"trades": [], "quotes": []}
    clock = 34_200_000  # milliseconds since midnight: half past nine
    for symbol in chance.choices(symbols, weights, k=count):
        # Many events share a millisecond: ties are what makes merging by time delicate.
        clock += chance.choice([0, 0, 1, 2, 7])
        prices[symbol] *= 1 + chance.gauss(0, 0.0005)
        price, size = prices[symbol], chance.choice([0, 100, 100, 200, 500, 1000])
        if chance.random() < 1 / 3:
            found["trades"].append({"line": f"{clock},{symbol},{price:.2f},{size}"})
        else:
            spread = abs(chance.gauss(0, price / 2000))
            line = f"{clock},{symbol},{price - 2 * spread:.2f},{price - spread / 2:.2f},{size}"
            found["quotes"].append({"line": line})
    return found


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, LINES, 30_000)


if __name__ == "__main__":
    main()
