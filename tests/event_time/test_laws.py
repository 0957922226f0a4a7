"""The law: with one source and event time only, the output does not depend on where epochs were cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.testing import run_parallel
from tests.event_time.test_timers import TIMED, Silence
from tests.event_time.test_watermarks import EXAMPLES
from tests.event_time.timed_programs import COLUMNS, cuts, rows


class Told(Silence):
    """With timers, and a sum of the broadcast stream."""

    seen: int = ab.broadcast(default=0)

    def on_broadcast(self, t):
        self.seen += t.x

    def on_timer(self, time):
        for k, at, times in super().on_timer(time):
            yield (k, at, times * 100 + self.seen)


def sessions(s):
    return s.aggregate(by="k", window=ab.sessions("at", 4), at=ab.agg.window_start(), x=ab.agg.sum("x"))


def late_ones(s):
    windows, late = s.aggregate(
        by="k", window=ab.event_time("at", 5), late="stream", at=ab.agg.window_start(), x=ab.agg.sum("x")
    )
    return windows.union(late.select("k", "at", x=lambda t: t.x * 1000))


def joined(s):
    even, odd = s.split(lambda t: t.x % 2 == 0)
    return even.join(
        odd,
        by="k",
        window=ab.event_time("at", 6),
        how="outer",
        function=lambda one, other: (
            (one or other).k,
            (one or other).at,
            (one.x if one else 7) - (other.x if other else 9),
        ),
        schema=COLUMNS,
    )


def told(s):
    rules, rest = s.split(lambda t: t.x % 3 == 0)
    return rest.process(Told(), by="k", schema=COLUMNS, broadcast=rules)


def changed(s):
    return s.changes(by="k", deleted=lambda t: t.x % 5 == 0).select("k", "at", "x")


LAWFUL = {
    **TIMED,
    "sessions": sessions,
    "late": late_ones,
    "joined": joined,
    "told": told,
    "changed": changed,
    "top": lambda s: s.top(2, "x", by="k"),
    "sorted": lambda s: s.sort("at", ab.delta("at", 3), key="k"),
}
chosen = st.lists(st.sampled_from(sorted(LAWFUL)), min_size=1, max_size=3)


def built(epochs, names):
    stream = from_epochs(epochs, COLUMNS).event_time("at", 2, every=3)
    for name in names:
        stream = LAWFUL[name](stream)
    return stream


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), names=chosen, channels=st.integers(1, 8), ends=st.booleans())
def test_where_epochs_are_cut_does_not_matter(data, names, channels, ends):
    tuples = data.draw(rows(30))
    whole, cut = built([tuples], names), built(data.draw(cuts(tuples)), names)
    expected = whole.run_sequential(ends=ends)
    assert cut.run_sequential(ends=ends) == expected
    assert run_parallel(cut, channels=channels, ends=ends) == expected
