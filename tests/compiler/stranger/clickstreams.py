"""Web visitors: sessions, funnels, duplicates, attribution, urls and user agents."""

from __future__ import annotations

import enum
import itertools
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import anabranch as ab
from tests.compiler.stranger.stranger_data import CLICKS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

BOT = re.compile(r"bot|crawler|spider|curl", re.IGNORECASE)
BROWSERS = (("Firefox", re.compile(r"Firefox/(\d+)")), ("Safari", re.compile(r"Safari/(\d+)")))


class Visit(NamedTuple):
    user: str
    path: str
    query: dict[str, str]
    source: str | None


def parse_click(t) -> Visit:
    parts = urlsplit(t.page)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    source = None
    if t.referrer:
        referrer = urlsplit(t.referrer)
        source = dict(parse_qsl(referrer.query)).get("utm_source") or referrer.hostname
    return Visit(t.user, parts.path, query, source)


def agent_family(agent: str) -> tuple[str, int]:
    for name, pattern in BROWSERS:
        if (found := pattern.search(agent)) is not None:
            return name, int(found.group(1))
    return "other", 0


def with_agent(t):
    family, version = agent_family(t.agent)
    mobile = "iPhone" in t.agent or "Android" in t.agent
    return (t.user, family, version, mobile)


def strip_tracking(t):
    if t.referrer is None:
        return t
    scheme, netloc, path, query, _ = urlsplit(t.referrer)
    kept = [(k, v) for k, v in parse_qsl(query) if not k.startswith("utm_")]
    return t.but(referrer=urlunsplit((scheme, netloc, path, urlencode(kept), "")))


# ---------------------------------------------------------------- keyed


@dataclass
class Session:
    user: str
    start: int
    end: int
    pages: int = 0

    def extend(self, ts: int) -> None:
        self.end = ts
        self.pages += 1


class Sessionizer:
    """Sessions end after half an hour without a click."""

    def __init__(self, timeout: int = 1800) -> None:
        self.timeout = timeout
        self.open: dict[str, Session] = {}

    def __call__(self, t: Any) -> Iterator[dict]:
        session = self.open.get(t.user)
        if session is not None and t.ts - session.end > self.timeout:
            yield asdict(session)
            session = None
        if session is None:
            session = self.open[t.user] = Session(t.user, t.ts, t.ts)
        session.extend(t.ts)


class Step(enum.IntEnum):
    NONE = 0
    PRODUCT = 1
    CART = 2
    CHECKOUT = 3
    DONE = 4


PAGE_STEPS = {"/cart": Step.CART, "/checkout": Step.CHECKOUT, "/thanks": Step.DONE}


class Funnel:
    def __init__(self):
        self.reached = defaultdict(lambda: Step.NONE)

    def __call__(self, t):
        step = Step.PRODUCT if t.page.startswith("/product/") else PAGE_STEPS.get(t.page, Step.NONE)
        if step == self.reached[t.user] + 1:
            self.reached[t.user] = step
            yield t.user, step.name, t.ts
            if step is Step.DONE:
                del self.reached[t.user]


class PageDedup:
    """A reload of the same page by the same user within a minute is no view."""

    def __init__(self):
        self.last_view = {}

    def __call__(self, t):
        view = (t.user, t.page)
        last = self.last_view.get(view)
        self.last_view[view] = t.ts
        if last is None or t.ts - last > 60:
            yield t


class Paths:
    """Bigrams of pages that users follow."""

    def __init__(self):
        self.previous = {}
        self.bigrams = defaultdict(Counter)

    def __call__(self, t):
        previous = self.previous.get(t.user)
        self.previous[t.user] = t.page
        if previous is None:
            return
        counter = self.bigrams[t.user]
        counter[previous, t.page] += 1
        (source, target), n = counter.most_common(1)[0]
        yield {"user": t.user, "source": source, "target": target, "n": n}


class FirstTouch(ab.Operator):
    """Every conversion with the referrer that first brought the user."""

    first: str = ab.state(default=None)
    clicks: int = ab.state(default=0)

    def process(self, t):
        self.clicks += 1
        if self.first is None:
            self.first = t.referrer
        if t.page == "/thanks":
            yield t.user, self.first or "direct", self.clicks
            self.first = None
            self.clicks = 0


class DwellTime:
    def __init__(self, cap=600):
        self._cap = cap
        self._entered = {}

    def __call__(self, t):
        entered = self._entered.pop(t.user, None)
        if entered is not None:
            page, ts = entered
            yield t.user, page, min(self._cap, t.ts - ts)
        self._entered[t.user] = (t.page, t.ts)


class PageCounter:
    """Views of each page; every tenth is a milestone."""

    def __init__(self):
        self.views = Counter()

    def __call__(self, t):
        self.views[t.page] += 1
        if self.views[t.page] % 10 == 0:
            yield t.page, self.views[t.page]


class ReturnVisitors:
    DAY = 86_400

    def __init__(self):
        self.days = {}

    def __call__(self, t):
        day = t.ts // (self.DAY // 24)
        days = self.days.setdefault(t.user, [])
        if not days or days[-1] != day:
            days.append(day)
            if len(days) > 1:
                yield t.user, len(days), days[-1] - days[-2]


class Scroll:
    """The last clicks of a user as context of each search."""

    def __init__(self, n):
        self.n = n
        self.trail = defaultdict(lambda: deque(maxlen=n))

    def __call__(self, t):
        trail = self.trail[t.user]
        if t.page.startswith("/search"):
            yield t.user, t.ts, list(itertools.islice(reversed(trail), self.n))
        trail.append(t.page)


class UserAgents:
    """A user that suddenly has another device."""

    def __init__(self):
        self.known = {}

    def __call__(self, t):
        known = self.known.setdefault(t.user, set())
        if t.agent not in known:
            known.add(t.agent)
            if len(known) > 1:
                yield t.user, sorted(known)


class AbTest:
    """Users see a variant by their name; the variant's steps are counted for each user."""

    def __init__(self, variants=("A", "B")):
        self.variants = variants
        self.exposures = {}

    def variant(self, user):
        return self.variants[sum(map(ord, user)) % len(self.variants)]

    def __call__(self, t):
        n = self.exposures[t.user] = self.exposures.get(t.user, 0) + 1
        if n in (1, 5, 10):
            yield t.user, self.variant(t.user), n


def make_numbering():
    """Numbers the clicks of each user."""
    numbers = {}

    def number(t):
        numbers[t.user] = numbers.get(t.user, 0) + 1
        return (t.user, numbers[t.user], t.page)

    return number


class Abandoned:
    """Carts that were not paid when the user comes back to the home page."""

    def __init__(self):
        self.carts = {}

    def __call__(self, t):
        match t.page:
            case "/cart":
                self.carts[t.user] = self.carts.get(t.user, 0) + 1
            case "/thanks" if t.user in self.carts:
                del self.carts[t.user]
            case "/":
                if (n := self.carts.pop(t.user, 0)) > 0:
                    yield t.user, n


ENTRIES = [
    stateless("parse_click", CLICKS, lambda s: s.map(parse_click)),
    stateless("no_bots", CLICKS, lambda s: s.filter(lambda t: not BOT.search(t.agent))),
    stateless(
        "with_agent",
        CLICKS,
        lambda s: s.map(with_agent, schema="user string, family string, version long, mobile boolean"),
    ),
    stateless("strip_tracking", CLICKS, lambda s: s.map(strip_tracking, schema=CLICKS.schema)),
    per_key(
        "sessionizer",
        CLICKS,
        lambda s: s.process(Sessionizer(), schema="user string, start long, end long, pages long"),
        "user",
    ),
    per_key("funnel", CLICKS, lambda s: s.process(Funnel(), schema="user string, step string, ts long"), "user"),
    per_key("page_dedup", CLICKS, lambda s: s.process(PageDedup()), "user", "page"),
    per_key(
        "page_bigrams",
        CLICKS,
        lambda s: s.process(Paths(), schema="user string, source string, target string, n long"),
        "user",
    ),
    per_key(
        "first_touch",
        CLICKS,
        lambda s: s.process(FirstTouch(), by="user", schema="user string, first string, clicks long"),
        "user",
    ),
    per_key(
        "dwell_time", CLICKS, lambda s: s.process(DwellTime(), schema="user string, page string, seconds long"), "user"
    ),
    per_key("page_milestones", CLICKS, lambda s: s.process(PageCounter(), schema="page string, views long"), "page"),
    per_key(
        "return_visitors",
        CLICKS,
        lambda s: s.process(ReturnVisitors(), schema="user string, visits long, gap long"),
        "user",
    ),
    per_key(
        "search_context",
        CLICKS,
        lambda s: s.process(Scroll(3), schema="user string, ts long, trail array<string>"),
        "user",
    ),
    per_key(
        "new_devices", CLICKS, lambda s: s.process(UserAgents(), schema="user string, agents array<string>"), "user"
    ),
    per_key("ab_test", CLICKS, lambda s: s.process(AbTest(), schema="user string, variant string, n long"), "user"),
    per_key(
        "click_numbers",
        CLICKS,
        lambda s: s.process(make_numbering(), schema="user string, n long, page string"),
        "user",
    ),
    per_key("abandoned_carts", CLICKS, lambda s: s.process(Abandoned(), schema="user string, carts long"), "user"),
]
