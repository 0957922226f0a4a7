"""An operator that has another name goes on with its state, however many steps the library makes of it."""

import random
from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import agg
from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError
from anabranch.testing import ParallelRun
from tests.event_time.test_timers import Silence
from tests.event_time.timed_programs import COLUMNS, Blocks, Running
from tests.operators.test_broadcast import PAYMENTS, RULES, Alerts

_chance = random.Random(3)
EPOCHS = [
    [(_chance.randint(0, 3), epoch * 5 + _chance.randint(0, 5), _chance.randint(0, 9)) for _ in range(12)]
    for epoch in range(6)
]
CLOCKS = [0, 1500, 3000, 4500, 6000, 9000]


class Own(ab.Operator):
    def __init__(self):
        self.sums = {}

    def process(self, t):
        self.sums[t.k] = self.sums.get(t.k, 0) + t.x
        yield (t.k, t.at, self.sums[t.k])


class Counted(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1
        yield (t.k, t.at, self.n)


class AlsoCounted(Counted):
    pass


def source() -> ab.Stream:
    return from_epochs(EPOCHS, COLUMNS)


def two() -> tuple[ab.Stream, ab.Stream]:
    return source(), from_epochs([epoch[::-1] for epoch in EPOCHS], COLUMNS)


def timed() -> ab.Stream:
    return source().event_time("at")


def pairs(name: str, **more: object) -> ab.Stream:
    one, other = two()
    seen = lambda here, there: (here.k, here.x, there.x)  # noqa: E731
    return one.join(other, window=ab.count(3), function=seen, schema="k long, a long, b long", name=name, **more)


def outer(name: str) -> ab.Stream:
    one, other = two()
    either = lambda here, there: ((here or there).k,)  # noqa: E731
    window = ab.event_time("at", 3)
    return one.event_time("at").join(
        other.event_time("at"), by="k", window=window, how="outer", function=either, schema="k long", name=name
    )


def told(name: str) -> ab.Stream:
    one, other = two()
    tuples = one.map(lambda t: (t.k, "ab"[t.x % 2], t.x), schema=PAYMENTS)
    rules = other.map(lambda t: ("ab"[t.k % 2], t.x), schema=RULES)
    return tuples.process(Alerts(), by="k", schema=PAYMENTS, broadcast=rules, name=name)


def enriched(name: str, **more: object) -> ab.Stream:
    one, other = two()
    return one.enrich(other.select("k", y="x"), by="k", name=name, **more)


def combined(name: str, **more: object) -> ab.Stream:
    one, other = two()
    return one.combine(other, on="at", name=name, **more)


def aligned(name: str) -> ab.Stream:
    one, other = two()
    return one.event_time("at").align(other.event_time("at"), on="at", name=name)


def found(name: str) -> ab.Stream:
    steps = [ab.step("a", lambda t: t.x > 5), ab.step("b", lambda t: t.x < 5)]
    return source().match(by="k", pattern=steps, emit=lambda m: (m.a[0].x,), schema="x long", name=name)


def shared(at: int) -> Callable[[str], ab.Stream]:
    def make(name: str) -> ab.Stream:
        one, other = two()
        return ab.share((one, Counted(), COLUMNS), (other, AlsoCounted(), COLUMNS), by="k", name=name)[at]

    return make


def windows(window: object, before: Callable[[], ab.Stream] = source, **more: object) -> Callable[[str], ab.Stream]:
    return lambda name: before().aggregate(**{"by": "k", **more}, window=window, n=agg.sum("x"), name=name)


def late(at: int) -> Callable[[str], ab.Stream]:
    return lambda name: windows(ab.event_time("at", 4), timed, late="stream")(name)[at]


def process(operator: ab.Operator, before: Callable[[], ab.Stream] = source, **more: object) -> Callable:
    return lambda name: before().process(operator, schema=COLUMNS, name=name, **more)


PROGRAMS: dict[str, Callable[[str], ab.Stream]] = {
    "process": process(Running(), by="k"),
    "a computed key": process(Running(), by=lambda t: t.k % 2),
    "timers": process(Silence(), timed, by="k"),
    "a policy": process(Running(), by="k", on_error="skip"),
    "a dict of its own": process(Own()),
    "count": windows(ab.count(5)),
    "count, a computed key": windows(ab.count(5), by=ab.key(lambda t: t.k % 2, "p long")),
    "the clock": windows(ab.time(2)),
    "punctuations": windows(ab.punctuation(), lambda: source().punctuate(lambda t: t.x == 9)),
    "event time": windows(ab.event_time("at", 7), timed),
    "results beside late ones": late(0),
    "late ones": late(1),
    "late ones, a computed key": lambda name: timed().aggregate(
        by=lambda t: t.k % 2, window=ab.event_time("at", 4), late="stream", n=agg.sum("x"), name=name
    )[1],
    "sessions": windows(ab.sessions("at", 2), timed),
    "running": windows(ab.running()),
    "top": lambda name: source().top(2, "x", by="k", name=name),
    "changes": lambda name: source().changes(by="k", name=name),
    "sort": lambda name: source().sort("at", ab.count(4), name=name),
    "sort by key": lambda name: source().sort("at", ab.count(4), key="k", name=name),
    "deduplicate": lambda name: source().deduplicate(by=["k", "x"], name=name),
    "join": lambda name: pairs(name, by="k"),
    "join by computed keys": lambda name: pairs(name, by=(lambda t: t.k % 2, lambda t: t.k % 2)),
    "join in event time": outer,
    "enrich": enriched,
    "enrich that waits": lambda name: enriched(name, wait=True),
    "combine": combined,
    "combine by key": lambda name: combined(name, by="k"),
    "align": aligned,
    "match": found,
    "accumulate": lambda name: source().accumulate(Blocks(), COLUMNS, block=5, every=10, name=name),
    "broadcast": told,
    "the first of a share": shared(0),
    "the second of a share": shared(1),
    "a watermark": lambda name: source().event_time("at", name=name),
}


@pytest.mark.parametrize(("before", "after"), [("off", "off"), ("on", "on"), ("on", "auto"), ("off", "auto")])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_renamed_operator_goes_on_as_if_it_had_its_name(program, before, after, tmp_path):
    def made(name: str) -> ab.Stream:
        stream = PROGRAMS[program](name)
        stream = stream.was("renamed").was("older") if name == "latest" else stream
        if program == "a watermark":
            stream = stream.aggregate(by="k", window=ab.event_time("at", 7), n=agg.sum("x"), name="behind")
        return stream

    expected, written = made("older").run_sequential(clocks_ms=CLOCKS), {}
    run = ParallelRun(
        made("older"), str(tmp_path), channels=3, split_hot_keys=before, written=written, clocks_ms=CLOCKS
    )
    run.run_epochs(0, 2)
    run = ParallelRun(
        made("latest"), str(tmp_path), channels=2, split_hot_keys=after, written=written, clocks_ms=CLOCKS
    )
    run.run_epochs(3)
    assert run.output == expected


def test_without_was_it_is_refused_in_parts_too(tmp_path):
    make = PROGRAMS["the clock"]
    ParallelRun(make("older"), str(tmp_path), split_hot_keys="on", clocks_ms=CLOCKS).run_epochs(0, 2)
    with pytest.raises(CheckpointError, match=r"older-parts .* its state would be lost"):
        ParallelRun(make("latest"), str(tmp_path), split_hot_keys="on", clocks_ms=CLOCKS)
