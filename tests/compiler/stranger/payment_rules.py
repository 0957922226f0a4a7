"""Cards and fraud: velocity rules, limits, first sightings, state machines of a card."""

import hashlib
import math
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import anabranch as ab
from tests.compiler.stranger.stranger_data import PAYMENTS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

RISKY_MERCHANTS = frozenset({"casino", "crypto"})
COUNTRY_RISK = {"DE": 0.0, "FR": 0.1, "US": 0.2}
CHANNEL_WEIGHT = {"pos": 1, "web": 3, "atm": 2}


class Scored(NamedTuple):
    card: str
    amount: float
    score: float
    reasons: list[str]


def score_payment(t) -> Scored:
    reasons = []
    score = COUNTRY_RISK.get(t.country, 0.5)
    if t.merchant in RISKY_MERCHANTS:
        reasons.append(f"merchant:{t.merchant}")
        score += 0.3
    if t.amount > 1000:
        reasons.append("large")
        score += min(0.5, math.log10(t.amount) / 10)
    score *= CHANNEL_WEIGHT[t.channel]
    return Scored(t.card, t.amount, round(score, 4), reasons)


def mask_card(t):
    prefix, _, last = t.card.partition("-")
    digest = hashlib.sha256(t.card.encode("utf-8")).hexdigest()[:12]
    return {"masked": "*" * len(prefix) + last[-4:], "token": digest, "amount": t.amount}


def is_suspicious(t):
    return t.amount >= 1000 and (t.country not in ("DE", "FR") or t.channel == "web")


def fees(t):
    match t.channel, t.amount:
        case "atm", a if a > 200:
            yield (t.card, "atm-large", a * 0.02)
            yield (t.card, "atm", 2.5)
        case "atm", _:
            yield (t.card, "atm", 2.5)
        case "web", a:
            yield (t.card, "web", a * 0.01)
        case _:
            return


# ---------------------------------------------------------------- keyed


class Velocity:
    """More than `limit` payments of a card within `window` seconds."""

    def __init__(self, limit=3, window=600):
        self.limit = limit
        self.window = window
        self.recent = defaultdict(deque)

    def __call__(self, t):
        times = self.recent[t.card]
        times.append(t.ts)
        while times and times[0] < t.ts - self.window:
            times.popleft()
        if len(times) > self.limit:
            yield t.card, len(times), t.ts


class DailySpend:
    """Spend of a card per day; alerts once when the limit is passed."""

    LIMIT = 3000.0

    def __init__(self):
        self.spent = {}

    def __call__(self, t):
        day = t.ts // 86400
        last_day, total, alerted = self.spent.get(t.card, (day, 0.0, False))
        if last_day != day:
            total, alerted = 0.0, False
        total += t.amount
        if total > self.LIMIT and not alerted:
            alerted = True
            yield {"card": t.card, "day": day, "total": round(total, 2)}
        self.spent[t.card] = (day, total, alerted)


class CardState(Enum):
    NEW = 0
    ACTIVE = 1
    WATCHED = 2
    BLOCKED = 3


class CardLifecycle:
    def __init__(self):
        self.states = {}

    def __call__(self, t):
        before = self.states.get(t.card, CardState.NEW)
        after = self._next(before, t)
        if after is not before:
            self.states[t.card] = after
            yield (t.card, before.name, after.name)

    @staticmethod
    def _next(state, t):
        if state is CardState.BLOCKED:
            return state
        if state is CardState.WATCHED and t.amount > 4000:
            return CardState.BLOCKED
        if state is CardState.ACTIVE and t.country in ("NG", "US"):
            return CardState.WATCHED
        if state is CardState.NEW:
            return CardState.ACTIVE
        return state


class FirstCountryUse:
    """The first payment of a card in each country."""

    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        key = (t.card, t.country)
        if key in self.seen:
            return None
        self.seen.add(key)
        return t


@dataclass
class Profile:
    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    merchants: Counter = field(default_factory=Counter)

    def update(self, x, merchant):
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (x - self.mean)
        self.merchants[merchant] += 1

    @property
    def std(self):
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0


class AmountZScore:
    def __init__(self, threshold: float = 1.5):
        self.profiles: dict[str, Profile] = {}
        self.threshold = threshold

    def __call__(self, t):
        try:
            profile = self.profiles[t.card]
        except KeyError:
            profile = self.profiles[t.card] = Profile()
        if profile.count >= 4 and profile.std > 0:
            z = (t.amount - profile.mean) / profile.std
            if abs(z) > self.threshold:
                yield t.card, t.amount, z, profile.merchants.most_common(1)[0][0]
        profile.update(t.amount, t.merchant)


class ImpossibleTravel(ab.Operator):
    seconds: int = 1800
    last_country: str = ab.state(default=None)
    last_ts: int = ab.state(default=0)

    def process(self, t):
        if self.last_country is not None and t.country != self.last_country and t.ts - self.last_ts < self.seconds:
            yield t.card, self.last_country, t.country, t.ts - self.last_ts
        self.last_country, self.last_ts = t.country, t.ts


class TestThenCharge:
    """A tiny payment followed by a large one at the same merchant: a stolen card being tested."""

    def __init__(self):
        self._tests = {}

    def __call__(self, t):
        key = t.card, t.merchant
        if t.amount < 2:
            self._tests[key] = t.ts
        elif t.amount > 200 and (tested := self._tests.pop(key, None)) is not None:
            yield t.card, t.merchant, t.ts - tested


class MerchantBaseline:
    """Each payment against the exponential average of its merchant."""

    ALPHA = 0.2

    def __init__(self):
        self.averages = {}

    def __call__(self, t):
        old = self.averages.setdefault(t.merchant, t.amount)
        new = self.ALPHA * t.amount + (1 - self.ALPHA) * old
        self.averages[t.merchant] = new
        return (t.merchant, t.amount, round(t.amount / old, 3), round(new, 3))


def cooldown_filter(seconds):
    """Alerts of a card at most once in so many seconds."""
    last_alert = {}

    def alert(t):
        if t.amount < 100:
            return
        if t.ts - last_alert.get(t.card, float("-inf")) >= seconds:
            last_alert[t.card] = t.ts
            yield t

    return alert


class RecentMerchants:
    """The last three different merchants of a card, newest last."""

    def __init__(self):
        self.by_card = {}

    def __call__(self, t):
        if t.card not in self.by_card:
            self.by_card[t.card] = OrderedDict()
        recent = self.by_card[t.card]
        recent[t.merchant] = t.ts
        recent.move_to_end(t.merchant)
        if len(recent) > 3:
            recent.popitem(last=False)
        return [(t.card, list(recent))]


class TokenBucket:
    """Refuses payments of a card that come faster than tokens drip in."""

    def __init__(self, rate=1 / 60, burst=3):
        self.rate, self.burst = rate, burst
        self.tokens = defaultdict(lambda: float(burst))
        self.updated = {}

    def __call__(self, t):
        elapsed = t.ts - self.updated.get(t.card, t.ts)
        self.updated[t.card] = t.ts
        self.tokens[t.card] = min(self.burst, self.tokens[t.card] + elapsed * self.rate)
        allowed = self.tokens[t.card] >= 1
        if allowed:
            self.tokens[t.card] -= 1
        yield (t.card, t.ts, allowed)


class ChannelMix:
    """How a card's payments are spread over the channels so far."""

    def __init__(self):
        self.counts = defaultdict(Counter)

    def __call__(self, t):
        counts = self.counts[t.card]
        counts[t.channel] += 1
        total = sum(counts.values())
        yield t.card, {channel: n / total for channel, n in sorted(counts.items())}


ENTRIES = [
    stateless("score_payment", PAYMENTS, lambda s: s.map(score_payment)),
    stateless("mask_card", PAYMENTS, lambda s: s.map(mask_card, schema="masked string, token string, amount double")),
    stateless("suspicious_payments", PAYMENTS, lambda s: s.filter(is_suspicious)),
    stateless("payment_fees", PAYMENTS, lambda s: s.flat_map(fees, schema="card string, kind string, fee double")),
    per_key(
        "card_velocity",
        PAYMENTS,
        lambda s: s.process(Velocity(limit=2, window=3000), schema="card string, n long, ts long"),
        "card",
    ),
    per_key(
        "daily_spend", PAYMENTS, lambda s: s.process(DailySpend(), schema="card string, day long, total double"), "card"
    ),
    per_key(
        "card_lifecycle",
        PAYMENTS,
        lambda s: s.process(CardLifecycle(), schema="card string, before string, after string"),
        "card",
    ),
    per_key("first_country_use", PAYMENTS, lambda s: s.process(FirstCountryUse()), "card", "country"),
    per_key(
        "amount_z_score",
        PAYMENTS,
        lambda s: s.process(AmountZScore(), schema="card string, amount double, z double, favourite string"),
        "card",
    ),
    per_key(
        "impossible_travel",
        PAYMENTS,
        lambda s: s.process(
            ImpossibleTravel(seconds=3600), by="card", schema="card string, home string, away string, gap long"
        ),
        "card",
    ),
    per_key(
        "test_then_charge",
        PAYMENTS,
        lambda s: s.process(TestThenCharge(), schema="card string, merchant string, gap long"),
        "card",
        "merchant",
    ),
    per_key(
        "merchant_baseline",
        PAYMENTS,
        lambda s: s.process(MerchantBaseline(), schema="merchant string, amount double, ratio double, mean double"),
        "merchant",
    ),
    per_key("alert_cooldown", PAYMENTS, lambda s: s.process(cooldown_filter(3600)), "card"),
    per_key(
        "recent_merchants",
        PAYMENTS,
        lambda s: s.process(RecentMerchants(), schema="card string, recent array<string>"),
        "card",
    ),
    per_key(
        "token_bucket",
        PAYMENTS,
        lambda s: s.process(TokenBucket(), schema="card string, ts long, allowed boolean"),
        "card",
    ),
    per_key(
        "channel_mix",
        PAYMENTS,
        lambda s: s.process(ChannelMix(), schema="card string, shares map<string,double>"),
        "card",
    ),
]
