"""Where one thread raises, the parallel run raises the same error, for the same tuple, whoever else failed as well."""

import os
import random
import zlib

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, count, time, tumbling
from anabranch.engine.driver.results import Results
from anabranch.errors import OperatorError
from anabranch.testing import ParallelRun
from tests.compiler.product_path import parallel, sequential
from tests.graphs import build, cases, clocks
from tests.programs import COLUMNS, Running

GRAPHS = int(os.environ.get("ANABRANCH_PROGRAMS", "60"))
RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


class BoomError(Exception):
    pass


class Meets:
    """Whether a tuple is one that an operator fails for: some are, whatever their values."""

    def __init__(self, salt, rarity):
        self.salt, self.rarity = salt, rarity

    def __call__(self, t):
        return zlib.crc32(f"{self.salt}{tuple(t)!r}".encode()) % self.rarity == 0


class Fails(ab.Operator):
    """Fails in the ways a method can, depending on what it has seen of its key."""

    how = "raises"
    meets = None
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if not self.meets(t) or self.seen < 2:
            yield t
            return
        if self.how == "raises":
            raise BoomError(f"{self.seen} of {t.k}")
        yield t
        if self.how == "emits, then raises":
            raise BoomError(f"{self.seen} of {t.k}")
        if self.how == "misfits":
            yield t.but(x="not a number")
        if self.how == "keeps":
            self.__dict__.update(undeclared=1)
        if self.how == "emits much, then raises":
            yield t.but(x=1.0)
            yield t.but(x=2.0)
            raise StopIteration


def raising(meets, value):
    def f(t):
        if meets(t):
            raise BoomError(f"{t.s}")
        return value(t)

    return f


def emitting_before(meets):
    def f(t):
        yield t
        if meets(t):
            raise BoomError("after the first")
        yield t.but(x=0.5)

    return f


def adding(meets):
    def add(total, t):
        if meets(t):
            raise BoomError("while adding")
        return total + 1

    return add


def ending(rarity):
    def result(total):
        if total % rarity == 1:
            raise BoomError(f"{total} in all")
        return float(total)

    return result


def _counted(stream, window, meets, rarity):
    x = agg.custom(create=lambda: 0, add=adding(meets), result=ending(rarity), type="double")
    return stream.aggregate(by="k", window=window, s=agg.last("s"), x=x).map(lambda t: (t.k, t.s, t.x), schema=COLUMNS)


def _keyed(how, by):
    def plant(s, meets):
        operator = Fails()
        operator.how, operator.meets = how, meets
        return s.process(operator, by=by, schema=COLUMNS)

    return plant


PLANTS = {
    "map": lambda s, m: s.map(raising(m, lambda t: t), schema=COLUMNS),
    "map misfits": lambda s, m: s.map(lambda t: t.but(x="no number") if m(t) else t, schema=COLUMNS),
    "map of another shape": lambda s, m: s.map(lambda t: (t.k, t.s) if m(t) else t, schema=COLUMNS),
    "filter": lambda s, m: s.filter(raising(m, lambda t: True)),
    "flat_map": lambda s, m: s.flat_map(emitting_before(m), schema=COLUMNS),
    "punctuate": lambda s, m: s.punctuate(raising(m, lambda t: t.k == 1)),
    "route": lambda s, m: s.route(lambda t: 7 if m(t) else 0, 2)[0],
    "split": lambda s, m: s.split(raising(m, lambda t: True))[0],
    "adds": lambda s, m: _counted(s, tumbling(count(3)), m, 10**6),
    "window ends": lambda s, m: _counted(s, tumbling(time(1)), Meets(m.salt, 10**6), m.rarity % 5 + 2),
    "join": lambda s, m: s.join(
        s, by="k", window=count(2), function=raising2(m, lambda a, b: (a.k, b.s, a.x)), schema=COLUMNS
    ),
    **{
        f"process {how} by {by}": _keyed(how, by)
        for how in ("raises", "emits, then raises", "misfits", "keeps", "emits much, then raises")
        for by in ("k", "s")
    },
}


def raising2(meets, value):
    def f(a, b):
        if meets(a):
            raise BoomError(f"{a.s} {b.s}")
        return value(a, b)

    return f


def planted(recipe, inputs, seed, rarity):
    """The program of a recipe with operators that fail for some tuples behind some of its steps."""
    chance = random.Random(seed)

    def plant(number, stream, _):
        if chance.random() < 0.6:
            stream = PLANTS[chance.choice(sorted(PLANTS))](stream, Meets(f"{seed} {number}", rarity))
        return stream

    return build(recipe, inputs, mark=plant)


GIVEN = settings(
    max_examples=GRAPHS,
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    print_blob=True,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking whole runs takes longer than reading one
    suppress_health_check=RELAXED,
)


@GIVEN
@given(
    case=cases(steps_max=6, epochs_max=3),
    channels=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    times=clocks,
    rarity=st.sampled_from([3, 9, 25, 60]),
    order=st.sampled_from(["total", "total", "none"]),
    splits=st.booleans(),
)
def test_the_error_is_that_of_one_thread(case, channels, seed, times, rarity, order, splits):
    recipe, inputs = case
    streams = planted(recipe, inputs, seed, rarity)
    expected = sequential(streams, times, epochs_max=12)
    assume("still fed back" not in expected.error)
    found = parallel(
        streams, channels, seed, times, fresh_tasks=False, orders=[order] * len(streams), split_hot_keys=splits
    )
    assume("no source" not in found.refused)
    assert (found.error, found.refused) == (expected.error, "")
    if order == "total":
        assert found == expected


def two_stages(rows_per_epoch=None):
    """Both operators fail, the second for an earlier tuple, and for each the channels that fail are several."""

    def late(t):
        if t.k >= 70:
            raise BoomError("late")
        return t

    def early(t):
        if t.k % 20 == 19:
            raise BoomError("early")
        return t

    rows = [(k, "abcdefgh"[k % 8], 1.0) for k in range(100)]
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=rows_per_epoch).map(late, schema=COLUMNS)
    counted = stream.process(Running(), by="s", schema=COLUMNS)
    return counted.map(early, schema=COLUMNS).process(Running(), by="k", schema=COLUMNS)


def test_an_earlier_error_of_a_later_stage_is_told(tmp_path):
    for channels in (1, 2, 5):
        with pytest.raises(OperatorError, match=r"BoomError: early\n(.*\n)*for the tuple \(k=19,"):
            ParallelRun(two_stages(), str(tmp_path / str(channels)), channels=channels).run_epochs()


def test_epochs_before_are_delivered_and_a_restart_meets_the_same_error(tmp_path):
    written = {}
    for seed in (1, 2):
        run = ParallelRun(two_stages(10), str(tmp_path), channels=3, seed=seed, written=written)
        with pytest.raises(OperatorError, match=r"epoch 1: raised BoomError: early\n(.*\n)*for the tuple \(k=19,"):
            run.run_epochs()
        assert [row.k for row in run.output] == list(range(10))


def test_an_error_that_does_not_come_again_is_told_as_it_came(tmp_path):
    (tmp_path / "first").touch()

    @ab.model(state="stateless")
    def once(t):
        if t.k == 5 and (tmp_path / "first").exists():
            (tmp_path / "first").unlink()
            raise BoomError("only once")
        return t

    stream = ab.from_rows([(k, "a", 1.0) for k in range(9)], COLUMNS).map(once, schema=COLUMNS)
    with pytest.raises(OperatorError, match="only once"):
        ParallelRun(stream, str(tmp_path / "checkpoint")).run_epochs()


def test_without_retracing_another_error_is_told(tmp_path, monkeypatch):
    """The comparison can fail."""
    monkeypatch.setattr(Results, "first_error", lambda self: None)
    assert parallel([two_stages()], 3) != sequential([two_stages()])
