"""Trades: bars, vwap, returns, crossings, best prices, positions."""

import heapq
import itertools
import math
import operator
import statistics
from collections import ChainMap, defaultdict, deque, namedtuple
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import reduce
from typing import Protocol

import numpy as np

import anabranch as ab
from tests.compiler.stranger.stranger_data import TRADES
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

TICK = Decimal("0.05")
DEFAULT_FEES = {"X": 0.0010, "N": 0.0007, "Q": 0.0005}
OVERRIDES = {"AAA": {"X": 0.0}, "BBB": {"N": 0.0001, "Q": 0.0002}}


def to_ticks(t):
    price = Decimal(str(t.price))
    ticks = (price / TICK).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)
    return (t.symbol, int(ticks), ticks * TICK)


def trade_cost(t):
    table = ChainMap(OVERRIDES.get(t.symbol, {}), DEFAULT_FEES)
    notional = t.price * t.size
    return {"symbol": t.symbol, "notional": notional, "fee": notional * table[t.venue]}


def split_lots(t):
    """Large trades in lots of at most 500."""
    lots, rest = divmod(t.size, 500)
    sizes = [500] * lots
    if rest:
        sizes.append(rest)
    for number, size in enumerate(sizes):
        yield t.but(size=size, venue=f"{t.venue}{number}")


def black_scholes_delta(t):
    strike, years, volatility = 100.0, 0.5, 0.3
    d1 = (math.log(t.price / strike) + volatility**2 / 2 * years) / (volatility * math.sqrt(years))
    cdf = 0.5 * (1 + math.erf(d1 / math.sqrt(2)))
    ratio = Fraction(t.size, 2000).limit_denominator(10)
    return t.symbol, cdf if t.side == "B" else cdf - 1, str(ratio)


# ---------------------------------------------------------------- keyed

Bar = namedtuple("Bar", "symbol start open high low close volume")


class Bars:
    """Bars of ten seconds."""

    def __init__(self, seconds=10):
        self.seconds = seconds
        self.current = {}

    def __call__(self, t):
        start = t.ts - t.ts % self.seconds
        bar = self.current.get(t.symbol)
        if bar is None or bar.start != start:
            if bar is not None:
                yield bar
            bar = Bar(t.symbol, start, t.price, t.price, t.price, t.price, 0)
        self.current[t.symbol] = bar._replace(
            high=max(bar.high, t.price), low=min(bar.low, t.price), close=t.price, volume=bar.volume + t.size
        )


class Vwap:
    def __init__(self):
        self.notional = defaultdict(float)
        self.volume = defaultdict(int)

    def __call__(self, t):
        self.notional[t.symbol] += t.price * t.size
        self.volume[t.symbol] += t.size
        yield t.symbol, t.price, self.notional[t.symbol] / self.volume[t.symbol]


class LogReturns:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        last, self.last[t.symbol] = self.last.get(t.symbol), t.price
        if last:
            yield t.symbol, math.log(t.price / last)


class Indicator(Protocol):
    def update(self, price: float) -> float: ...


class Ema:
    def __init__(self, span):
        self.alpha = 2 / (span + 1)
        self.value = None

    def update(self, price):
        self.value = price if self.value is None else self.value + self.alpha * (price - self.value)
        return self.value


class Crossing:
    """Signals where the fast average crosses the slow one."""

    def __init__(self, fast=3, slow=8):
        self.fast, self.slow = fast, slow
        self.indicators: dict[str, tuple[Indicator, Indicator]] = {}
        self.signs: dict[str, int] = {}

    def __call__(self, t):
        if t.symbol not in self.indicators:
            self.indicators[t.symbol] = (Ema(self.fast), Ema(self.slow))
        fast, slow = (each.update(t.price) for each in self.indicators[t.symbol])
        sign = (fast > slow) - (fast < slow)
        if sign and sign != self.signs.get(t.symbol, 0):
            self.signs[t.symbol] = sign
            yield t.symbol, {1: "golden", -1: "death"}[sign], round(fast - slow, 6)


class Positions(ab.Operator):
    quantity: int = ab.state(default=0)
    cost: float = ab.state(default=0.0)
    realized: float = ab.state(default=0.0)

    def process(self, t):
        signed = t.size if t.side == "B" else -t.size
        if self.quantity * signed < 0:
            closing = min(abs(signed), abs(self.quantity))
            average = self.cost / self.quantity
            direction = 1 if self.quantity > 0 else -1
            self.realized += direction * closing * (t.price - average)
            self.cost -= direction * closing * average
            self.quantity -= direction * closing
            signed += direction * closing
        if signed:
            self.quantity += signed
            self.cost += signed * t.price
        return t.symbol, self.quantity, round(self.realized, 2)


class LargestTrades:
    """The three largest trades of a symbol, with heapq."""

    def __init__(self, k=3):
        self.k = k
        self.heaps = {}

    def __call__(self, t):
        heap = self.heaps.setdefault(t.symbol, [])
        item = (t.size, t.ts, t.price)
        if len(heap) < self.k:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)
        else:
            return
        yield t.symbol, [size for size, _, _ in heapq.nlargest(self.k, heap)]


class DonchianChannel:
    def __init__(self, n=6):
        self.n = n
        self.prices = defaultdict(lambda: deque(maxlen=n))

    def __call__(self, t):
        prices = self.prices[t.symbol]
        if len(prices) == self.n:
            if t.price > max(prices):
                yield t.symbol, "breakout", t.price
            elif t.price < min(prices):
                yield t.symbol, "breakdown", t.price
        prices.append(t.price)


class BestVenue:
    """The venue that last traded a symbol at the lowest price."""

    def __init__(self):
        self.book = {}

    def __call__(self, t):
        venues = self.book.get(t.symbol, {})
        venues = {**venues, t.venue: t.price}
        self.book[t.symbol] = venues
        best = min(venues, key=venues.get)
        yield (t.symbol, best, venues[best], max(venues.values()) - venues[best])


class Rsi:
    PERIOD = 5

    def __init__(self):
        self._closes = defaultdict(list)

    @staticmethod
    def _rsi(closes):
        changes = [b - a for a, b in itertools.pairwise(closes)]
        gain = sum(c for c in changes if c > 0)
        loss = -sum(c for c in changes if c < 0)
        return 100.0 if loss == 0 else 100 - 100 / (1 + gain / loss)

    def __call__(self, t):
        closes = self._closes[t.symbol]
        closes.append(t.price)
        if len(closes) > self.PERIOD + 1:
            closes.pop(0)
        if len(closes) == self.PERIOD + 1:
            yield t.symbol, round(self._rsi(closes), 3)


class VenueVolatility:
    def __init__(self, size=8):
        self.size = size
        self.samples = {}

    def __call__(self, t):
        key = (t.symbol, t.venue)
        samples = [*self.samples.get(key, []), t.price][-self.size :]
        self.samples[key] = samples
        if len(samples) >= 3:
            yield *key, statistics.pstdev(samples), statistics.fmean(samples)


class TickTest:
    """Who was the aggressor, by the tick rule."""

    def __init__(self):
        self.previous = {}

    def __call__(self, t):
        price, direction = self.previous.get(t.symbol, (t.price, 0))
        if t.price != price:
            direction = 1 if t.price > price else -1
        self.previous[t.symbol] = (t.price, direction)
        return [(t.symbol, t.price, ("sell", "unknown", "buy")[direction + 1])]


class Drawdown:
    def __init__(self):
        self.peaks = {}
        self.worst = {}

    def __call__(self, t):
        self.peaks[t.symbol] = max(self.peaks.get(t.symbol, 0.0), t.price)
        fall = 1 - t.price / self.peaks[t.symbol]
        if fall > self.worst.get(t.symbol, 0.0):
            self.worst[t.symbol] = fall
            yield {"symbol": t.symbol, "peak": self.peaks[t.symbol], "drawdown": round(fall, 5)}


class Regression:
    """Slope of the price over the last ten trades of a symbol, by least squares."""

    def __init__(self, n=10):
        self.n = n
        self.points = {}

    def __call__(self, t):
        points = self.points.setdefault(t.symbol, deque(maxlen=self.n))
        points.append((t.ts, t.price))
        if len(points) < 4:
            return
        xs, ys = (np.asarray(each, dtype=float) for each in zip(*points, strict=True))
        xs -= xs[0]
        if xs[-1] == 0:
            return
        slope, _ = np.polyfit(xs, ys, 1)
        trend = reduce(operator.add, (b > a for a, b in itertools.pairwise(ys)), 0)
        yield t.symbol, round(float(slope), 6), int(trend)


ENTRIES = [
    stateless("to_ticks", TRADES, lambda s: s.map(to_ticks, schema="symbol string, ticks long, price decimal(12,2)")),
    stateless("trade_cost", TRADES, lambda s: s.map(trade_cost, schema="symbol string, notional double, fee double")),
    stateless("split_lots", TRADES, lambda s: s.flat_map(split_lots, schema=TRADES.schema)),
    stateless(
        "option_delta",
        TRADES,
        lambda s: s.map(black_scholes_delta, schema="symbol string, delta double, share string"),
    ),
    per_key(
        "bars",
        TRADES,
        lambda s: s.process(
            Bars(),
            schema="symbol string, start long, open double, high double, low double, close double, volume long",
        ),
        "symbol",
    ),
    per_key("vwap", TRADES, lambda s: s.process(Vwap(), schema="symbol string, price double, vwap double"), "symbol"),
    per_key("log_returns", TRADES, lambda s: s.process(LogReturns(), schema="symbol string, change double"), "symbol"),
    per_key(
        "crossing",
        TRADES,
        lambda s: s.process(Crossing(), schema="symbol string, signal string, gap double"),
        "symbol",
    ),
    per_key(
        "positions",
        TRADES,
        lambda s: s.process(Positions(), by="symbol", schema="symbol string, quantity long, realized double"),
        "symbol",
    ),
    per_key(
        "largest_trades",
        TRADES,
        lambda s: s.process(LargestTrades(), schema="symbol string, sizes array<long>"),
        "symbol",
    ),
    per_key(
        "donchian",
        TRADES,
        lambda s: s.process(DonchianChannel(), schema="symbol string, signal string, price double"),
        "symbol",
    ),
    per_key(
        "best_venue",
        TRADES,
        lambda s: s.process(BestVenue(), schema="symbol string, venue string, price double, spread double"),
        "symbol",
    ),
    per_key("rsi", TRADES, lambda s: s.process(Rsi(), schema="symbol string, rsi double"), "symbol"),
    per_key(
        "venue_volatility",
        TRADES,
        lambda s: s.process(VenueVolatility(), schema="symbol string, venue string, std double, mean double"),
        "symbol",
        "venue",
    ),
    per_key(
        "tick_test",
        TRADES,
        lambda s: s.process(TickTest(), schema="symbol string, price double, side string"),
        "symbol",
    ),
    per_key(
        "drawdown",
        TRADES,
        lambda s: s.process(Drawdown(), schema="symbol string, peak double, drawdown double"),
        "symbol",
    ),
    per_key(
        "price_slope",
        TRADES,
        lambda s: s.process(Regression(), schema="symbol string, slope double, rises long"),
        "symbol",
    ),
]
