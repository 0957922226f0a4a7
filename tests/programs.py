"""Random programs and random data, for tests that compare ways of running them.

All operators take and give the columns ``k long, s string, x double``, so that any chain of them is a
program. They are those of the simulator's swarm (`anabranch.sim.swarm.random_programs`).
"""

from __future__ import annotations

import time

from hypothesis import strategies as st

import anabranch as ab
from anabranch.sim.swarm.random_programs import COLUMNS, STEPS, History, Jump, Last, Running

__all__ = ["COLUMNS", "STEPS", "History", "Jump", "Last", "Plain", "Running", "build", "exact", "slow"]


def slow(stream: ab.Stream, cost_s: float) -> ab.Stream:
    """The stream, each tuple of which has taken some time."""

    @ab.model(state="stateless", selectivity="1:1", forwards="*")
    def waiting(t):
        time.sleep(cost_s)
        return t

    return stream.map(waiting, schema=stream.schema, name="slow")


class Plain(ab.Operator):
    """A sum per key, named by a string."""

    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield (t.k, self.total)


def build(stream: ab.Stream, steps: list[str]) -> ab.Stream:
    """The program with these operators in a row."""
    for step in steps:
        stream = STEPS[step](stream)
    return stream


# Few distinct values, the first far more likely than the rest: skewed keys, many ties, all kinds of null.
keys = st.one_of(st.just(1), st.just(1), st.integers(0, 6), st.none())
names = st.one_of(st.just("a"), st.sampled_from(["", "a", "b", "é", "a longer name than eight bytes"]), st.none())
numbers = st.one_of(
    st.integers(-4, 8).map(float), st.floats(-5, 5), st.sampled_from([-0.0, 0.0, float("nan"), float("inf")]), st.none()
)
rows = st.tuples(keys, names, numbers)
epochs = st.lists(st.lists(rows, max_size=25), min_size=1, max_size=4)
programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=0, max_size=6)


def exact(rows: list[ab.Row]) -> list[str]:
    """Rows as text that tells apart what == does not: -0.0 and 0.0, 1 and 1.0; and NaN equals NaN."""
    return [repr(row) for row in rows]
