"""Campaigns and players: budgets, frequency caps, attribution, streaks, ratings, achievements."""

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from functools import cached_property, singledispatchmethod, wraps
from typing import ClassVar

import anabranch as ab
from tests.compiler.stranger.stranger_data import ADS, PLAYS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless


class Bucket(Enum):
    CHEAP = "cheap"
    NORMAL = "normal"
    PREMIUM = "premium"

    @classmethod
    def of(cls, bid):
        if bid < 1:
            return cls.CHEAP
        return cls.NORMAL if bid < 3 else cls.PREMIUM


def bid_bucket(t):
    return t.campaign, Bucket.of(t.bid).value, Bucket.of(t.bid) is Bucket.PREMIUM


def holdout(percent, salt="2024"):
    """Users of the control group, by a hash of their name."""

    def accept(t):
        return zlib.crc32(f"{salt}/{t.user}".encode()) % 100 >= percent

    return accept


def jittered_bid(t):
    rng = random.Random(zlib.crc32(t.request.encode()))
    candidates = [t.bid * rng.uniform(0.9, 1.1) for _ in range(3)]
    return t.request, max(candidates), rng.choice(["left", "right"])


def traced(function: Callable) -> Callable:
    """Puts the function's name beside what it returns."""

    @wraps(function)
    def wrapper(t):
        return (*function(t), function.__name__)

    return wrapper


POINTS = {"kill": 100, "assist": 40, "loot": 5}


@traced
def worth(t):
    base = POINTS.get(t.action, 0)
    bonus = max(t.points, 0) if t.arena == "arena" else 0
    return t.player, base + bonus


# ---------------------------------------------------------------- keyed


class FrequencyCap:
    def __init__(self, cap=2):
        self.cap = cap
        self.shown = Counter()

    def __call__(self, t):
        if t.event != "impression":
            return
        pair = t.campaign, t.user
        if self.shown[pair] < self.cap:
            self.shown[pair] += 1
            yield t


class Budget:
    """A campaign's money; impressions after it has run out are turned away."""

    def __init__(self, budgets, default=10.0):
        self.budgets = dict(budgets)
        self.default = default
        self.left = {}

    def __call__(self, t):
        left = self.left.get(t.campaign)
        if left is None:
            left = self.budgets.get(t.campaign, self.default)
        accepted = t.bid <= left
        if accepted:
            left -= t.bid
        self.left[t.campaign] = left
        yield t.campaign, t.request, accepted, round(left, 3)


class ClickThrough(ab.Operator):
    """Click-through rate of a campaign with a Bayesian prior."""

    prior: tuple = (1, 20)
    impressions: int = ab.state(default=0)
    clicks: int = ab.state(default=0)

    def process(self, t):
        if t.event == "impression":
            self.impressions += 1
        elif t.event == "click":
            self.clicks += 1
        else:
            return
        a, b = self.prior
        yield t.campaign, (self.clicks + a) / (self.impressions + b)


class LastClick:
    """Conversions go to the user's last click within ten minutes."""

    def __init__(self):
        self.clicks = {}

    def __call__(self, t):
        if t.event == "click":
            self.clicks[t.user] = t
        elif t.event == "conversion":
            click = self.clicks.get(t.user)
            if click is not None and t.ts - click.ts <= 3600:
                yield t.user, click.campaign, t.campaign, t.ts - click.ts


class RequestDedup:
    def __init__(self):
        self.requests = set()

    def __call__(self, t):
        if t.request not in self.requests:
            self.requests.add(t.request)
            yield t


class Pacing:
    """Thompson sampling with numbers that a campaign's own count seeds."""

    def __init__(self):
        self.wins = defaultdict(lambda: [1, 1])

    def __call__(self, t):
        arms = self.wins[t.campaign]
        arms[0 if t.event != "impression" else 1] += 1
        rng = random.Random(f"{t.campaign}{sum(arms)}")
        yield t.campaign, rng.betavariate(*arms)


class Badge(Flag):
    NONE = 0
    FIGHTER = auto()
    COLLECTOR = auto()
    TALKER = auto()


class Achievements:
    NEEDED: ClassVar[dict] = {"kill": (3, Badge.FIGHTER), "loot": (2, Badge.COLLECTOR), "chat": (2, Badge.TALKER)}

    def __init__(self):
        self.done = {}

    def __call__(self, t):
        if t.action not in self.NEEDED:
            return
        counts, badges = self.done.setdefault(t.player, ({}, Badge.NONE))
        counts[t.action] = counts.get(t.action, 0) + 1
        needed, badge = self.NEEDED[t.action]
        if counts[t.action] >= needed and badge not in badges:
            badges |= badge
            self.done[t.player] = (counts, badges)
            yield t.player, badge.name, badges.value


@dataclass(slots=True)
class Stats:
    kills: int = 0
    deaths: int = 0
    streak: int = 0
    best: int = 0
    log: list[str] = field(default_factory=list)

    def kill(self):
        self.kills += 1
        self.streak += 1
        self.best = max(self.best, self.streak)

    def die(self):
        self.deaths += 1
        self.streak = 0

    @property
    def ratio(self):
        return self.kills / max(1, self.deaths)


class KillStreaks:
    def __init__(self):
        self.players = defaultdict(Stats)

    def __call__(self, t):
        stats = self.players[t.player]
        handler = {"kill": stats.kill, "death": stats.die}.get(t.action)
        if handler is None:
            return
        handler()
        yield {"player": t.player, "ratio": stats.ratio, "streak": stats.streak, "best": stats.best}


class TopScores:
    """A player's three best scores in each arena."""

    def __init__(self, k=3):
        self.k = k
        self.boards = defaultdict(lambda: defaultdict(list))

    def __call__(self, t):
        board = self.boards[t.player][t.arena]
        board.append(t.points)
        board.sort(reverse=True)
        del board[self.k :]
        if t.points in board:
            yield t.player, t.arena, list(board)


class Xp:
    """Levels: each needs half more than the one before."""

    def __init__(self):
        self.progress = {}

    @cached_property
    def thresholds(self):
        needed, total, table = 40, 0, []
        for _ in range(20):
            total += needed
            table.append(total)
            needed += needed // 2
        return table

    def level(self, points):
        return sum(1 for needed in self.thresholds if points >= needed)

    def __call__(self, t):
        before = self.progress.get(t.player, 0)
        after = before + max(0, t.points)
        self.progress[t.player] = after
        if (level := self.level(after)) > self.level(before):
            yield t.player, level, after


class Presence:
    """Who is where: joined and left, with the time played."""

    def __init__(self):
        self.joined = {}

    def __call__(self, t):
        handle = getattr(self, f"on_{t.action}", None)
        return handle(t) if handle else None

    def on_join(self, t):
        self.joined.setdefault((t.player, t.arena), t.ts)

    def on_leave(self, t):
        joined = self.joined.pop((t.player, t.arena), None)
        if joined is not None:
            return [(t.player, t.arena, t.ts - joined)]
        return []


class Wallet:
    def __init__(self):
        self.balances = {}

    @singledispatchmethod
    def value(self, points):
        return 0

    @value.register
    def _(self, points: int):
        return points if points > 0 else -1

    def __call__(self, t):
        if t.action != "loot":
            return
        self.balances[t.player] = balance = self.balances.get(t.player, 10) + self.value(t.points)
        yield t.player, balance, balance < 0


ENTRIES = [
    stateless("bid_bucket", ADS, lambda s: s.map(bid_bucket, schema="campaign string, bucket string, premium boolean")),
    stateless("holdout", ADS, lambda s: s.filter(holdout(30))),
    stateless("jittered_bid", ADS, lambda s: s.map(jittered_bid, schema="request string, bid double, place string")),
    stateless("worth", PLAYS, lambda s: s.map(worth, schema="player string, points long, rule string")),
    per_key("frequency_cap", ADS, lambda s: s.process(FrequencyCap(1)), "campaign", "user"),
    per_key(
        "campaign_budget",
        ADS,
        lambda s: s.process(
            Budget({"c1": 5.0, "c2": 20.0}),
            schema="campaign string, request string, accepted boolean, remaining double",
        ),
        "campaign",
    ),
    per_key(
        "click_through",
        ADS,
        lambda s: s.process(ClickThrough(prior=(2, 30)), by="campaign", schema="campaign string, rate double"),
        "campaign",
    ),
    per_key(
        "last_click",
        ADS,
        lambda s: s.process(LastClick(), schema="user string, clicked string, converted string, gap long"),
        "user",
    ),
    per_key("request_dedup", ADS, lambda s: s.process(RequestDedup()), "request"),
    per_key("pacing", ADS, lambda s: s.process(Pacing(), schema="campaign string, draw double"), "campaign"),
    per_key(
        "achievements",
        PLAYS,
        lambda s: s.process(Achievements(), schema="player string, badge string, badges long"),
        "player",
    ),
    per_key(
        "kill_streaks",
        PLAYS,
        lambda s: s.process(KillStreaks(), schema="player string, ratio double, streak long, best long"),
        "player",
    ),
    per_key(
        "top_scores",
        PLAYS,
        lambda s: s.process(TopScores(), schema="player string, arena string, scores array<long>"),
        "player",
    ),
    per_key("levels", PLAYS, lambda s: s.process(Xp(), schema="player string, level long, points long"), "player"),
    per_key(
        "presence",
        PLAYS,
        lambda s: s.process(Presence(), schema="player string, arena string, seconds long"),
        "player",
        "arena",
    ),
    per_key(
        "wallet", PLAYS, lambda s: s.process(Wallet(), schema="player string, balance long, broke boolean"), "player"
    ),
]
