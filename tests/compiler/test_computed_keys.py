"""Operators whose key is computed from the tuple run in several channels, and give what one thread gives."""

import datetime
import decimal
import json
import random
import tempfile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import OperatorError
from anabranch.program.key_text import key_text
from anabranch.testing import ParallelRun, run_parallel

COLUMNS = "x long, s string, at timestamp, price decimal(12,4), day date"
START = datetime.datetime(2024, 3, 31, tzinfo=datetime.UTC)


def rows(seed, count=240):
    chance = random.Random(seed)
    return [
        (
            chance.choice([None, *range(-30, 30)]),
            chance.choice(["a", "A", " b", "B ", "long text", "", "é", None]),
            START + datetime.timedelta(minutes=chance.randrange(600)),
            decimal.Decimal(chance.randrange(40)) / 8,
            datetime.date(2024, 1, 1) + datetime.timedelta(days=chance.randrange(40)),
        )
        for _ in range(count)
    ]


class ByRemainder:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if t.x is None:
            return
        self.counts[t.x % 7] = self.counts.get(t.x % 7, 0) + 1
        yield (f"{t.x % 7}", self.counts[t.x % 7])


class ByParts:
    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        if t.s is None:
            return
        key = (t.s.strip().lower(), t.at.hour // 4)
        if key not in self.seen:
            self.seen.add(key)
            yield (str(key), 1)


class ByText:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        key = f"{t.s}-{t.day.month}"
        before, self.last[key] = self.last.get(key), t.x
        yield (key, before)


class ByAmount:
    def __init__(self):
        self.sums = {}

    def __call__(self, t):
        self.sums[t.price * 2] = self.sums.get(t.price * 2, 0) + 1
        yield ("", self.sums[t.price * 2])


class BySlice:
    def __init__(self):
        self.lists = {}

    def __call__(self, t):
        if t.s:
            self.lists.setdefault(t.s[:1], []).append(t.x)
            yield (t.s[:1], len(self.lists[t.s[:1]]))


class ThatMayFail:
    """The key cannot be computed for some tuples, which then touch nothing."""

    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        try:
            self.counts[60 // t.x] = self.counts.get(60 // t.x, 0) + 1
        except (ZeroDivisionError, TypeError):
            yield ("none", None)
        else:
            yield ("some", self.counts[60 // t.x])


OPERATORS = [ByRemainder, ByParts, ByText, ByAmount, BySlice, ThatMayFail]


def program(operator, data, per_epoch):
    return ab.from_rows(data, COLUMNS, rows_per_epoch=per_epoch).process(
        operator(), schema="k string, n long", name="op"
    )


@pytest.mark.parametrize("operator", OPERATORS)
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), channels=st.integers(1, 6), per_epoch=st.integers(7, 200))
def test_parallel_is_sequential(operator, seed, channels, per_epoch):
    stream = program(operator, rows(seed), per_epoch)
    assert run_parallel(stream, channels=channels, seed=seed) == stream.run_sequential()


@pytest.mark.parametrize("operator", OPERATORS)
def test_it_is_a_region_with_channels(operator):
    stream = program(operator, rows(0), 50)
    layout = json.loads(stream.plan().explain("json"))
    regions = [stage for stage in layout["stages"] if stage.get("region")]
    assert [stage["region"] for stage in regions] == ["op"]
    with tempfile.TemporaryDirectory() as scratch:  # and it has as many as are asked for
        run = ParallelRun(stream, scratch, channels=4)
        run.run_epochs()
        assert [(each.name, each.channels) for each in run.runner.status()] == [("op", 4)]
        assert len({r.channel for r in run.runner.last.reports if getattr(r, "name", "") == "op"}) == 4


def test_filters_maps_and_several_keys_in_a_row_through_rescaling(tmp_path):
    seen, counts = set(), {}

    def is_new(t):
        new = (t.x or 0) // 3 not in seen
        seen.add((t.x or 0) // 3)
        return new or (t.x or 0) > 5

    def numbered(t):
        counts[t.day.isoformat()[:7]] = counts.get(t.day.isoformat()[:7], 0) + 1
        return (t.x, counts[t.day.isoformat()[:7]])

    def make():
        stream = ab.from_rows(rows(3), COLUMNS, rows_per_epoch=40).filter(is_new)
        return stream.map(numbered, schema="x long, n long").process(
            ByRemainder(), schema="k string, n long", name="op"
        )

    expected = make().run_sequential()
    assert expected
    written = {}
    for number in range(6):
        run = ParallelRun(make(), str(tmp_path), channels=1 + number % 4, seed=number, written=written)
        run.run_epochs(number, number + 1)
    assert run.output == expected


def test_a_failure_shows_the_tuple_as_the_author_knows_it():
    class Fails(ByRemainder):
        def __call__(self, t):
            self.counts[t.x % 7] = 1
            raise ValueError("no")

    stream = program(Fails, [(3, "a", START, decimal.Decimal(1), START.date())], 1)
    with pytest.raises(OperatorError) as sequential:
        stream.run_sequential()
    with pytest.raises(OperatorError) as parallel:
        run_parallel(stream, channels=2)
    assert "key" not in parallel.value.row and sequential.value.row == parallel.value.row


atoms = [
    st.none(),
    st.integers(),
    st.integers(-3, 3),
    st.text(st.characters(), max_size=3),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")])),
    st.decimals(allow_nan=False, places=None),
    st.sampled_from([decimal.Decimal(each) for each in ("0", "-0", "1.5", "1.50", "15E-1", "100", "1E2")]),
    st.sampled_from([START, START.astimezone(ZoneInfo("Asia/Tokyo"))]),
]


@settings(max_examples=300)
@given(data=st.data())
def test_two_keys_have_one_text_exactly_if_a_dict_takes_them_for_one(data):
    one = data.draw(st.sampled_from(atoms))
    first, second = data.draw(one), data.draw(one)
    if type(first) is not type(second):
        return  # of one type each: the compiler sees to that
    assert (key_text(first) == key_text(second)) == ({first: 1}.get(second) == 1)
    assert (key_text((first, 1)) == key_text((second, 1))) == ((first, 1) == (second, 1))


def test_a_key_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        key_text(decimal.Decimal("NaN"))
