"""Random programs that are graphs, for tests that compare ways of running them.

The operators and recipes are those of the simulator's swarm (`anabranch.sim.swarm.random_programs`); hypothesis draws
larger ones from them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.sim.swarm.random_programs import MORE, STEPS, TWO, Recipe, build, data

__all__ = ["MORE", "STEPS", "TWO", "Recipe", "build", "cases", "clocks", "data", "recipes"]


@st.composite
def recipes(draw, steps_max: int = 10):
    """Random programs of up to so many steps (a step may be several operators)."""
    sources = draw(st.sampled_from([1, 1, 2, 3]))
    loop = draw(st.sampled_from([False, False, False, True]))
    names = sorted(({*STEPS, *MORE} - {"nothing"}) | {*TWO, "route", "split"}) + sorted(TWO)
    steps = []
    made = sources + loop
    for _ in range(draw(st.integers(2, steps_max))):
        name = draw(st.sampled_from(names))
        # What was made last is read most often: chains with branches rather than bushes.
        reads = tuple(made - 1 - min(draw(st.integers(0, 3)), draw(st.integers(0, made - 1))) for _ in range(2))
        steps.append((name, reads))
        made += 3 if name in ("route", "split") else 1
    ends = draw(st.lists(st.integers(sources, made - 1), max_size=4, unique=True))
    return Recipe(sources, tuple(steps), (made - 1, *ends), loop, draw(st.integers(0, made - 1)))


@st.composite
def cases(draw, steps_max: int = 10, epochs_max: int = 4):
    """A program, and data for each of its sources."""
    recipe = draw(recipes(steps_max))
    sizes = st.sampled_from([40, 60, 90, 10, 3, 0])
    return recipe, [data(draw(st.integers(0, 10**6)), draw(sizes), epochs_max) for _ in range(recipe.sources)]


clocks = st.lists(st.integers(0, 4000), min_size=1, max_size=6).map(sorted)
