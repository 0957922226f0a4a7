"""Orders: baskets, coupons, taxes, deadlines, loyalty, the life of an order."""

import calendar
import copy
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import Final
from zoneinfo import ZoneInfo

import anabranch as ab
from tests.compiler.stranger.stranger_data import ORDERS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

TAX: Final = {"bread": Decimal("0.07"), "cheese": Decimal("0.07")}
NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
TOKYO = ZoneInfo("Asia/Tokyo")


def invoice_lines(t):
    for number, (item, price) in enumerate(zip(t.items, t.prices, strict=True), 1):
        net = Decimal(str(price))
        tax = (net * TAX.get(item, Decimal("0.19"))).quantize(Decimal("0.01"), rounding=ROUND_UP)
        yield t.order_id, number, item, net + tax


def tidy_basket(t):
    """Without doubles, sorted, with a gift card where wanted; the row's own list stays as it is."""
    items = list(t.items)
    items.sort()
    for item in set(items):
        while items.count(item) > 1:
            items.remove(item)
    attributes = copy.deepcopy(t.attributes)
    if attributes.pop("gift") == "yes":
        items.append("card")
    attributes["size"] = str(len(items))
    return {"order_id": t.order_id, "items": items, "attributes": attributes}


def delivery_promise(t):
    local = t.at.astimezone(TOKYO)
    day = local.date() + timedelta(days=1 if local.hour < 14 else 2)
    while day.weekday() >= calendar.SATURDAY:
        day += timedelta(days=1)
    last = calendar.monthrange(day.year, day.month)[1]
    return t.order_id, day, day.day == last, f"{local:%a %d.%m. %H:%M}"


def external_id(t):
    return str(uuid.uuid5(NAMESPACE, f"{t.customer}/{t.order_id}")), t.total, sum(t.prices, start=0.0)


# ---------------------------------------------------------------- keyed


class OrderLifecycle:
    ALLOWED = {  # noqa: RUF012
        None: {"created"},
        "created": {"paid", "cancelled"},
        "paid": {"shipped", "cancelled"},
        "shipped": {"delivered"},
        "delivered": {"created"},
        "cancelled": {"created"},
    }

    def __init__(self):
        self.status = {}

    def __call__(self, t):
        status = self.status.get(t.order_id)
        legal = t.event in self.ALLOWED[status]
        if legal:
            self.status[t.order_id] = t.event
        return t.order_id, status, t.event, legal


class Loyalty:
    TIERS = ((Decimal(2000), "gold"), (Decimal(800), "silver"), (Decimal(0), "bronze"))

    def __init__(self):
        self.spent = defaultdict(Decimal)
        self.tier = {}

    @classmethod
    def tier_for(cls, amount):
        return next(name for limit, name in cls.TIERS if amount >= limit)

    def __call__(self, t):
        if t.event == "cancelled":
            return
        self.spent[t.customer] += t.total
        tier = self.tier_for(self.spent[t.customer])
        if self.tier.get(t.customer) != tier:
            self.tier[t.customer] = tier
            yield t.customer, tier, self.spent[t.customer]


class Favourites:
    """What a customer buys most, and what goes together with it."""

    def __init__(self):
        self.bought: dict[str, Counter[str]] = {}

    def __call__(self, t):
        if not t.items:
            return
        bought = self.bought.setdefault(t.customer, Counter())
        bought.update(t.items)
        best = sorted(bought.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
        yield t.customer, [name for name, _ in best], {name: n for name, n in best}  # noqa: C416


class OneCoupon:
    """A customer may use each coupon once."""

    def __init__(self):
        self.used = defaultdict(set)

    def __call__(self, t):
        coupon = t.attributes.get("coupon")
        if not coupon:
            return None
        if coupon in self.used[t.customer]:
            return {"customer": t.customer, "coupon": coupon, "accepted": False}
        self.used[t.customer].add(coupon)
        return {"customer": t.customer, "coupon": coupon, "accepted": True}


class DailyTotals(ab.Operator):
    """Totals of a customer and day, when the next day begins."""

    visits: list = ab.state(factory=list)

    def process(self, t):
        if not self.visits or self.visits[-1][0] != t.day:
            if self.visits:
                yield t.customer, *self.visits[-1]
            self.visits.append([t.day, Decimal(0)])
        self.visits[-1][1] += t.total
        del self.visits[:-3]


class Reorder:
    """How long until a customer orders the same item again; days between, averaged."""

    def __init__(self):
        self.last = {}
        self.gaps = {}

    def remember(self, customer: str, items: Iterable[str], at) -> Iterable[tuple[str, float]]:
        last = self.last.setdefault(customer, {})
        gaps = self.gaps.setdefault(customer, {})
        for item in dict.fromkeys(items):
            if item in last:
                gaps.setdefault(item, []).append((at - last[item]).total_seconds() / 3600)
                yield item, sum(gaps[item]) / len(gaps[item])
            last[item] = at

    def __call__(self, t):
        for item, mean in self.remember(t.customer, t.items, t.at):
            yield (t.customer, item, round(mean, 3))


ENTRIES = [
    stateless(
        "invoice_lines",
        ORDERS,
        lambda s: s.flat_map(invoice_lines, schema="order_id string, line long, item string, gross decimal(10,2)"),
    ),
    stateless(
        "tidy_basket",
        ORDERS,
        lambda s: s.map(tidy_basket, schema="order_id string, items array<string>, attributes map<string,string>"),
    ),
    stateless(
        "delivery_promise",
        ORDERS,
        lambda s: s.map(delivery_promise, schema="order_id string, day date, month_end boolean, ordered string"),
    ),
    stateless(
        "external_id", ORDERS, lambda s: s.map(external_id, schema="id string, total decimal(10,2), listed double")
    ),
    per_key(
        "order_lifecycle",
        ORDERS,
        lambda s: s.process(OrderLifecycle(), schema="order_id string, before string, event string, legal boolean"),
        "order_id",
    ),
    per_key(
        "loyalty",
        ORDERS,
        lambda s: s.process(Loyalty(), schema="customer string, tier string, spent decimal(12,2)"),
        "customer",
    ),
    per_key(
        "favourites",
        ORDERS,
        lambda s: s.process(Favourites(), schema="customer string, best array<string>, counts map<string,long>"),
        "customer",
    ),
    per_key(
        "one_coupon",
        ORDERS,
        lambda s: s.process(OneCoupon(), schema="customer string, coupon string, accepted boolean"),
        "customer",
    ),
    per_key(
        "daily_totals",
        ORDERS,
        lambda s: s.process(DailyTotals(), by="customer", schema="customer string, day date, total decimal(12,2)"),
        "customer",
    ),
    per_key(
        "reorder_gaps",
        ORDERS,
        lambda s: s.process(Reorder(), schema="customer string, item string, hours double"),
        "customer",
    ),
]
