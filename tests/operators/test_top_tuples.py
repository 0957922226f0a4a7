"""`top`: the first tuples of each key as they change, against plain Python and in parallel."""

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import ProgramError, SchemaError
from anabranch.testing import run_parallel

COLUMNS = "k string, x long, y double"
rows = st.tuples(
    st.sampled_from("ab"), st.integers(0, 5), st.one_of(st.none(), st.sampled_from([1.0, 2.0, float("nan")]))
)
epochs = st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3)


def by_hand(given, count, ranked):
    """Sort all tuples of the key that came so far, stably, and tell what is at another place than before."""
    seen = collections.defaultdict(list)
    for row in given:
        before = list(seen[row[0]])[:count]
        # Nulls are smaller than any value, NaN is larger.
        seen[row[0]] = sorted(
            [*seen[row[0]], row],
            key=lambda t: (-t[1], (0, 0) if t[2] is None else (2, 0) if t[2] != t[2] else (1, t[2])),
        )
        now = seen[row[0]][:count]
        places = [at for at in range(len(now)) if at >= len(before) or now[at] is not before[at]]
        if places:
            yield from [(*now[at], at + 1) for at in places] if ranked else [row]


@settings(max_examples=40, deadline=None)
@given(epochs, st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_the_first_are_those_of_a_stable_sort_of_all(epochs, count, ranked, channels):
    stream = from_epochs(epochs, COLUMNS)
    made = stream.top(count, ["x", "y"], by="k", descending=[True, False], rank="place" if ranked else None)
    found = made.run_sequential()
    expected = list(by_hand([(r[0], r[1], r[2]) for rows in epochs for r in rows], count, ranked))
    assert [repr(tuple(row)) for row in found] == [repr(row) for row in expected]
    assert repr(run_parallel(made, channels=channels)) == repr(found)


def test_the_last_update_of_each_rank_is_the_answer():
    given = [("ab"[n % 2], n * 7 % 31, None) for n in range(40)]
    made = ab.from_rows(given, COLUMNS).top(3, "x", by=lambda t: t.k.upper(), rank="place")
    table = {(t.k, t.place): t.x for t in made.run_sequential()}
    best = {k: sorted((x for key, x, _ in given if key == k), reverse=True)[:3] for k in "ab"}
    assert table == {(k, at + 1): x for k, found in best.items() for at, x in enumerate(found)}
    assert made.columns == ["k", "x", "y", "place"]


def test_a_key_whose_first_do_not_change_is_forgotten():
    run = SequentialRun(ab.from_rows([], COLUMNS).top(1, "x", by="k", ttl=10)._node)
    for clock_ms, x in [(0, 5), (9000, 3), (11_000, 4)]:
        run.clock_ms = clock_ms
        run.feed([("a", x, None)])
    assert [row.x for row in run.output] == [5, 4]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.top(0, "x"), "top at .*expected how many"),
        (lambda s: s.top(1, "nope"), "no column 'nope'"),
        (lambda s: s.top(1, []), "nothing to order by"),
        (lambda s: s.top(1, "x", descending=[True, False]), "descending="),
        (lambda s: s.top(1, "x", rank="x"), "has a column of this name"),
        (lambda s: s.top(1, "x", by="nope"), "is not a column"),
    ],
)
def test_mistakes_are_told(build, message):
    with pytest.raises((ProgramError, SchemaError), match=message):
        build(ab.from_rows([], COLUMNS))
