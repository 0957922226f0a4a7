"""Time zones: instants are the same everywhere; local time is a column, and its days are those of the zone."""

import datetime
from collections import Counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError, SchemaError
from anabranch.testing import run_parallel
from tests.restless import restless_output

ZONES = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "UTC"]
# Around the days on which clocks change, in one or the other of these zones.
STARTS = [datetime.datetime(2024, *day, tzinfo=datetime.UTC) for day in ((3, 9), (3, 30), (10, 26), (11, 2), (4, 6))]
hours = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 96 * 4)), min_size=1, max_size=40)


def per_day(stream, zone):
    return (
        stream.local_time("at", zone)
        .event_time("local", lateness=datetime.timedelta(days=9))
        .aggregate(
            by="k",
            window=ab.event_time("local", datetime.timedelta(days=1)),
            day=ab.agg.window_start(),
            n=ab.agg.count(),
        )
    )


def rows(start, quarters):
    return [(k, start + datetime.timedelta(minutes=15 * each)) for k, each in quarters]


@settings(max_examples=6, deadline=None)
@given(
    data=st.data(),
    start=st.sampled_from(STARTS),
    epochs=st.lists(hours, min_size=1, max_size=3),
    zone=st.sampled_from(ZONES),
    channels=st.integers(1, 8),
)
def test_days_are_those_of_the_zone(tmp_path_factory, data, start, epochs, zone, channels):
    stream = per_day(from_epochs([rows(start, each) for each in epochs], "k string, at timestamp"), zone)
    found = stream.run_sequential(ends=True)
    expected = Counter((k, at.astimezone(ZoneInfo(zone)).date()) for each in epochs for k, at in rows(start, each))
    assert {(t.k, t.day.date()): t.n for t in found} == expected
    assert len(found) == len(expected)
    assert run_parallel(stream, channels=channels, ends=True) == found
    assert restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint")), ends=True) == found


def test_a_day_has_as_many_hours_as_the_clocks_show():
    def hours_of(*day):
        start = datetime.datetime(2024, *day, tzinfo=datetime.UTC)
        stream = ab.from_rows(rows(start, [("a", each) for each in range(0, 96 * 4, 4)]), "k string, at timestamp")
        return {t.day.day: t.n for t in per_day(stream, "America/New_York").run_sequential(ends=True)}

    assert hours_of(3, 9)[10] == 23 and hours_of(3, 9)[11] == 24
    assert hours_of(11, 2)[3] == 25 and hours_of(11, 2)[4] == 24


def test_what_has_no_local_time_is_refused():
    stream = ab.from_rows([], "at timestamp, plain timestamp_ntz, n long")
    for column, more, text in [
        ("what", {}, "no column"),
        ("n", {}, "only a timestamp is an instant"),
        ("plain", {}, "only a timestamp is an instant"),
        ("at", {"name": "n"}, "choose a name"),
    ]:
        with pytest.raises(SchemaError, match=text):
            stream.local_time(column, "UTC", **more)
    with pytest.raises(ProgramError, match="is not known to Python"):
        stream.local_time("at", "Mars/Olympus")
    assert ab.from_rows([(None, None, 1)], stream.schema).local_time("at").run_sequential()[0].local is None
