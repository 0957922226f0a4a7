"""What happens in the auction house: of 50 events one is a new person, three are new auctions, the rest are bids.

    event n ─► person (1 of 50) │ auction (3 of 50) │ bid (46 of 50)

An event is a tuple with three structs, of which one is there. Some auctions, sellers and bidders are hot: half of all
bids go to the newest auction whose number is a multiple of 100, three of four come from the newest such bidder, and so
on. Bids may be for auctions, and auctions by persons, that come a little later. Each event is made from the seed and
its number alone.
"""

from __future__ import annotations

import datetime
import random
import string
from collections.abc import Iterator
from typing import Any

import anabranch as ab

PERSON = (
    "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, "
    "extra string"
)
AUCTION = (
    "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp, "
    "expires timestamp, seller long, category long, extra string"
)
BID = "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string"
PERSON_EVENT, AUCTION_EVENT, BID_EVENT = 0, 1, 2
LATENESS = 4
"""Seconds by which an event may be behind others."""

PERSONS_OF_50, AUCTIONS_OF_50 = 1, 3
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT = 100  # one of so many persons and auctions may be hot
LEAD = 10  # so many ids may be named before their time
ACTIVE_PERSONS, IN_FLIGHT_AUCTIONS = 1000, 100
START = datetime.datetime(2024, 3, 1, 23, 58, tzinfo=datetime.UTC)
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent"),
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
SIDE_INPUT = "key long, value string"


def _struct(columns: str) -> str:
    fields = [each.strip().split(" ") for each in columns.split(",")]
    return "struct<" + ", ".join(f"{name}:{kind}" for name, kind in fields) + ">"


EVENTS = f"event_type int, person {_struct(PERSON)}, auction {_struct(AUCTION)}, bid {_struct(BID)}, dateTime timestamp"


def generate(count: int, seed: int = 0, *, per_second: int = 100, disorder: int = 0) -> list[tuple[Any, ...]]:
    """The first `count` events, rows of `EVENTS`.

    Parameters
    ----------
    per_second : int
        How many events there are in a second of event time.
    disorder : int
        Events come up to so many places from where their times would put them.
    """
    return list(events(count, seed, per_second, disorder))


def events(count: int, seed: int, per_second: int, disorder: int, *, first: int = 0) -> Iterator[tuple[Any, ...]]:
    """The events one by one, from number `first` on."""
    numbers = list(range(first, count))
    if disorder:
        chance = random.Random(f"order {seed}")
        numbers.sort(key=lambda number: number + chance.uniform(0, disorder))
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        # Milliseconds, as the benchmark has them.
        at = START + datetime.timedelta(milliseconds=number * 1000 // per_second)
        place = number % 50
        if place < PERSONS_OF_50:
            yield PERSON_EVENT, _person(number, chance, at), None, None, at
        elif place < PERSONS_OF_50 + AUCTIONS_OF_50:
            yield AUCTION_EVENT, None, _auction(number, chance, at, per_second), None, at
        else:
            yield BID_EVENT, None, None, _bid(number, chance, at), at


def side_input(count: int = 10_000) -> list[tuple[int, str]]:
    """The table of query 13."""
    return [(key, f"value {key}") for key in range(count)]


def _last_person(number: int) -> int:
    """How many persons there are at an event, less one."""
    return number // 50 * PERSONS_OF_50 + min(number % 50, PERSONS_OF_50 - 1)


def _last_auction(number: int) -> int:
    """How many auctions there are at an event, less one."""
    rounds, place = divmod(number, 50)
    return rounds * AUCTIONS_OF_50 + min(place - PERSONS_OF_50, AUCTIONS_OF_50 - 1)


def _any_person(number: int, chance: random.Random) -> int:
    known = _last_person(number) + 1
    active = min(known, ACTIVE_PERSONS)
    return known - active + chance.randrange(active + LEAD)


def _any_auction(number: int, chance: random.Random) -> int:
    last = _last_auction(number)
    oldest = max(last - IN_FLIGHT_AUCTIONS, 0)
    return oldest + chance.randrange(max(last - oldest, 0) + 1 + LEAD)


def _person(number: int, chance: random.Random, at: datetime.datetime) -> dict[str, Any]:
    return {
        "id": FIRST_ID + _last_person(number),
        "name": f"{chance.choice(FIRST_NAMES)} {chance.choice(LAST_NAMES)}",
        "emailAddress": f"{_word(chance, 7)}@{_word(chance, 5)}.com",
        "creditCard": " ".join(f"{chance.randrange(10_000):04d}" for _ in range(4)),
        "city": chance.choice(CITIES),
        "state": chance.choice(STATES),
        "dateTime": at,
        "extra": _letters(chance, 100),
    }


def _auction(number: int, chance: random.Random, at: datetime.datetime, per_second: int) -> dict[str, Any]:
    hot = chance.randrange(4) > 0
    seller = _last_person(number) // HOT * HOT if hot else _any_person(number, chance)
    first = _price(chance)
    # Auctions last so long that, on average, as many are open at a time.
    horizon = IN_FLIGHT_AUCTIONS * 50 * 1000 // (AUCTIONS_OF_50 * per_second)
    return {
        "id": FIRST_ID + _last_auction(number),
        "itemName": _word(chance, 20),
        "description": _word(chance, 100),
        "initialBid": first,
        "reserve": first + _price(chance),
        "dateTime": at,
        "expires": at + datetime.timedelta(milliseconds=1 + chance.randrange(2 * horizon)),
        "seller": FIRST_ID + seller,
        "category": FIRST_CATEGORY + chance.randrange(CATEGORIES),
        "extra": _letters(chance, 250),
    }


def _bid(number: int, chance: random.Random, at: datetime.datetime) -> dict[str, Any]:
    hot_auction, hot_bidder = chance.randrange(2) > 0, chance.randrange(4) > 0
    auction = _last_auction(number) // HOT * HOT if hot_auction else _any_auction(number, chance)
    bidder = _last_person(number) // HOT * HOT + 1 if hot_bidder else _any_person(number, chance)
    if chance.randrange(2) > 0:
        channel = chance.choice(HOT_CHANNELS)
        url = _url(channel)
    else:
        place = chance.randrange(CHANNELS)
        channel = f"channel-{place}"
        # One of ten has none; the number is turned round, so that neighbours are far apart.
        url = _url(channel) + (f"&channel_id={int(f'{place:032b}'[::-1], 2) >> 1}" if place % 10 else "")
    return {
        "auction": FIRST_ID + auction,
        "bidder": FIRST_ID + bidder,
        "price": _price(chance),
        "channel": channel,
        "url": url,
        "dateTime": at,
        "extra": _letters(chance, 68),
    }


def _price(chance: random.Random) -> int:
    """Cents, spread over six powers of ten."""
    return round(10 ** (6 * chance.random()) * 100)


def _url(channel: str) -> str:
    chance = random.Random(channel)
    return f"https://www.nexmark.com/{_word(chance, 5)}/{_word(chance, 5)}/{_word(chance, 5)}/item.htm?query=1"


def _word(chance: random.Random, longest: int) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randrange(3, longest)))


def _letters(chance: random.Random, mean: int) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randrange(mean * 8 // 10, mean * 12 // 10)))


def streams(source: ab.Stream) -> dict[str, ab.Stream]:
    """The streams that queries read, from the stream of events: `persons`, `auctions`, `bids`; with event time."""
    timed = source.event_time("dateTime", lateness=LATENESS)
    return {
        "persons": timed.filter(lambda e: e.event_type == 0).map(lambda e: e.person, schema=PERSON),
        "auctions": timed.filter(lambda e: e.event_type == 1).map(lambda e: e.auction, schema=AUCTION),
        "bids": timed.filter(lambda e: e.event_type == 2).map(lambda e: e.bid, schema=BID),
    }
