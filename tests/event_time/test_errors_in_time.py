"""Where one thread raises among watermarks, timers, windows, joins and elastic operators, the same is raised."""

import os
import zlib

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from tests.compiler.product_path import parallel, sequential
from tests.event_time.test_timers import TIMED
from tests.event_time.test_watermarks import source
from tests.event_time.timed_programs import COLUMNS, cuts, rows

PROGRAMS = int(os.environ.get("ANABRANCH_PROGRAMS", "40"))


class BoomError(Exception):
    pass


def meets(salt, rarity, value):
    """Whether something is what an operator fails for: some are, whatever they are."""
    return zlib.crc32(f"{salt}{value!r}".encode()) % rarity == 0


class FailsInTime(ab.Operator):
    """Fails when a tuple comes, or when its time has come; before or behind what it emits."""

    salt: int = 0
    rarity: int = 5
    where: str = "timer"
    key: int = ab.state(default=None)
    seen: int = ab.state(default=0)

    def process(self, t):
        self.key, self.seen = t.k, self.seen + 1
        self.timers.at(t.at + 4)
        yield t
        if self.where == "tuple" and meets(self.salt, self.rarity, tuple(t)):
            raise BoomError(f"tuple {self.seen}")

    def on_timer(self, time):
        if self.where == "before" and meets(self.salt, self.rarity, (self.key, time)):
            raise BoomError(f"before {time}")
        yield (self.key if self.key is not None else 0, time, self.seen)
        if self.where == "timer" and meets(self.salt, self.rarity, (self.key, time)):
            raise BoomError(f"at {time}")


def raising(salt, rarity):
    def function(t):
        if meets(salt, rarity, tuple(t)):
            raise BoomError(f"{t.x}")
        return t

    return function


def adding(salt, rarity):
    def add(total, t):
        if meets(salt, rarity, tuple(t)):
            raise BoomError("while adding")
        return total + 1

    return add


def ending(rarity):
    def result(total):
        if total % rarity == 1 and total > 1:
            raise BoomError(f"{total} in all")
        return total

    return result


def windowed(stream, window, salt, rarity):
    x = ab.agg.custom(create=lambda: 0, add=adding(salt, 10 * rarity), result=ending(rarity), type="long")
    return stream.aggregate(by="k", window=window, at=ab.agg.window_start(), x=x)


def joined(stream, salt, rarity):
    other = stream.select("k", at2="at", y="x")
    window = (ab.event_time("at", 3), ab.event_time("at2", 4))
    both = stream.join(other, by="k", window=window)
    return both.map(raising(salt, rarity), schema=both.schema).select("k", "at", "x")


def in_time(where):
    return lambda s, salt, rarity: s.process(FailsInTime(salt=salt, rarity=rarity, where=where), by="k", schema=COLUMNS)


PLANTS = {
    "map": lambda s, salt, rarity: s.map(raising(salt, rarity), schema=COLUMNS),
    "elastic map": lambda s, salt, rarity: s.map(raising(salt, rarity), schema=COLUMNS, elastic=True, max_workers=3),
    "tuple": in_time("tuple"),
    "timer": in_time("timer"),
    "before": in_time("before"),
    "window": lambda s, salt, rarity: windowed(s, ab.event_time("at", 5), salt, rarity),
    "sliding": lambda s, salt, rarity: windowed(s, ab.sliding(ab.event_time("at", 6), every=3), salt, rarity),
    "session": lambda s, salt, rarity: windowed(s, ab.sessions("at", 3), salt, rarity),
    "join": joined,
}
steps = st.lists(st.sampled_from(sorted(TIMED)), max_size=2)


@settings(
    max_examples=PROGRAMS,
    deadline=None,
    print_blob=True,
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    data=st.data(),
    before=steps,
    after=steps,
    plants=st.lists(st.sampled_from(sorted(PLANTS)), min_size=1, max_size=3),
    channels=st.integers(1, 5),
    seed=st.integers(0, 999),
    rarity=st.sampled_from([2, 4, 9, 20]),
)
def test_the_error_is_that_of_one_thread(data, before, after, plants, channels, seed, rarity):
    epochs = data.draw(cuts(data.draw(rows())))
    stream = source(epochs, lateness=1, every=data.draw(st.sampled_from([1, 4])))
    for step in before:
        stream = TIMED[step](stream)
    for number, plant in enumerate(plants):
        if stream.schema.names != ("k", "at", "x"):
            stream = stream.select("k", "at", "x")
        stream = PLANTS[plant](stream, seed + number, rarity)
    for step in after:
        stream = TIMED[step](stream)
    expected = sequential([stream])
    found = parallel([stream], channels, seed, fresh_tasks=False)
    assert (found.error, found.refused) == (expected.error, "")
    assert found == expected
