"""readj (Algorithm 4 of the paper): leave keys where they are, then move and swap while the balance improves.

Each step looks at every move of a key to another channel and every swap of two keys between channels that
lowers ρ, and takes the one of the largest gain: the drop in utility, from the start of the step, per
frequency moved. (The lines lost from the text are γ = (m + M(p, w)) / m̄ and u′ = U(a, γ).)

ρ can only fall if, for some resource, the largest load falls or the smallest rises. So one of the two
channels of a useful readjustment is the most or the least loaded for some resource, and all other pairs of
channels can be left out without changing the result. That is what makes this version several times faster
than the direct one, which is kept for comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.placement_problem import Placement, PlacementProblem

MOVES_PER_KEY_DEFAULT = 5
"""
The paper's bound c on how often a key may move. At σ = 0.1 it hardly matters; at σ = 0.008 it ends
the search: gain per frequency moved favours swaps of nearly equal keys, thousands of them, each for little.
"""
_RELATIVE_STEP = 1e-12
"""ρ must fall by more than rounding errors, or two equal placements could alternate for ever."""


def readj(
    problem: PlacementProblem, *, every_pair: bool = False, moves_per_key: int = MOVES_PER_KEY_DEFAULT
) -> Placement:
    """Readjust the placement of every key.

    Parameters
    ----------
    every_pair
        Look at all pairs of channels, as the paper's text does; the same answer, more slowly.
    moves_per_key
        How often a key may move at most.
    """
    problem = problem.with_distinct_loads()
    keys = len(problem.frequencies)
    gone = problem.origins >= problem.channels
    placement = np.where(gone, problem.fallback, problem.origins).astype(np.int32)
    moves_left = np.full(keys, moves_per_key)
    while (step := _best_step(problem, placement, moves_left > 0, every_pair)) is not None:
        first, second, target = step
        if second is not None:
            placement[second] = placement[first]
            moves_left[second] -= 1
        placement[first] = target
        moves_left[first] -= 1
    return placement


def _best_step(
    problem: PlacementProblem, placement: Placement, movable: NDArray[np.bool_], every_pair: bool
) -> tuple[int, int | None, int] | None:
    """The key to move, the key it is swapped with (or None), and the channel it moves to."""
    loads = problem.channel_loads(placement)
    mean = loads.mean(axis=0)
    balance_now = float(problem.penalty_of_loads(loads))
    moved_now = problem.moved_state(placement)
    utility_now = float(problem.utility.of(balance_now, problem.migration_penalty(moved_now)))

    first, second, target = _candidates(problem, placement, movable, loads, every_pair)
    is_swap = second >= 0
    source = placement[first]
    shifted = problem.loads[first] - np.where(is_swap[:, None], problem.loads[second], 0.0)
    largest_elsewhere, smallest_elsewhere = _elsewhere(loads)
    source_after, target_after = loads[source] - shifted, loads[target] + shifted
    largest = np.maximum(largest_elsewhere[source, target], np.maximum(source_after, target_after))
    smallest = np.minimum(smallest_elsewhere[source, target], np.minimum(source_after, target_after))
    balance = problem.balance_penalty(largest, smallest, mean)

    volume = np.abs(problem.frequencies[first] - np.where(is_swap, problem.frequencies[second], 0.0))
    useful = np.flatnonzero((balance < balance_now * (1 - _RELATIVE_STEP)) & (volume > 0))
    if not useful.size:
        return None
    first, second, target, source = first[useful], second[useful], target[useful], source[useful]
    is_swap, volume = is_swap[useful], volume[useful]
    moved = moved_now + _moved_by(problem, first, source, target)
    moved += np.where(is_swap, _moved_by(problem, second, target, source), 0.0)
    utility = problem.utility.of(balance[useful], problem.migration_penalty(moved))
    gain = (utility_now - utility) / volume
    # Many steps have the very same gain. The choice must not depend on which others were looked at.
    ties = np.flatnonzero(gain == gain.max())
    best = int(ties[np.lexsort((target[ties], second[ties], first[ties]))[0]])
    swapped = int(second[best])
    return int(first[best]), (swapped if swapped >= 0 else None), int(target[best])


def _moved_by(
    problem: PlacementProblem, keys: NDArray[np.integer], source: Placement, target: Placement
) -> NDArray[np.float64]:
    """M of Equation 22: state that moves more (or, if a key goes back home, less)."""
    origins = problem.origins[keys]
    return problem.state[keys] * ((origins == source).astype(np.float64) - (origins == target))


def _candidates(
    problem: PlacementProblem,
    placement: Placement,
    movable: NDArray[np.bool_],
    loads: NDArray[np.float64],
    every_pair: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """All moves (second key -1) and swaps, as first key, second key, target of the first key."""
    keys, channels = len(placement), problem.channels
    extreme = np.zeros(channels, dtype=bool)
    if every_pair:
        extreme[:] = True
    else:
        extreme[loads.argmax(axis=0)] = True
        extreme[loads.argmin(axis=0)] = True
    at_extreme = extreme[placement]

    everywhere = np.arange(channels, dtype=np.int32)
    may_move = placement[:, None] != everywhere
    may_move &= at_extreme[:, None] | extreme
    may_move &= movable[:, None]
    moves, targets = np.nonzero(may_move)

    anchors = np.flatnonzero(at_extreme & movable)
    others = np.arange(keys)
    may_swap = placement[anchors][:, None] != placement
    # Two keys that both stand at extreme channels would otherwise come twice.
    may_swap &= movable & (~at_extreme | (others > anchors[:, None]))
    rows, partners = np.nonzero(may_swap)
    swaps = anchors[rows]
    earlier, later = np.minimum(swaps, partners), np.maximum(swaps, partners)

    first = np.concatenate([moves, earlier])
    second = np.concatenate([np.full(len(moves), -1), later])
    target = np.concatenate([everywhere[targets], placement[later]])
    return first, second, target


def _elsewhere(loads: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest and smallest load of all channels but i and j, at [i, j]; -inf, inf if none."""
    resources = loads.shape[1]
    padding = np.full((3, resources), np.inf)
    ascending = np.sort(np.concatenate([loads, padding]), axis=0)
    descending = -np.sort(np.concatenate([-loads, padding]), axis=0)
    smallest, largest = (_outside(loads, ranked) for ranked in (ascending, descending))
    return largest, smallest


def _outside(loads: NDArray[np.float64], ranked: NDArray[np.float64]) -> NDArray[np.float64]:
    """The best of `ranked` that is left when channels i and j are taken out, at [i, j]."""
    one, two, three = ranked[0], ranked[1], ranked[2]
    is_one = loads == one
    is_two = loads == two
    # Among equals any one may stand for the first: taking out one of several leaves the same value.
    tied_two = one == two
    i_one, j_one = is_one[:, None, :], is_one[None, :, :]
    i_two, j_two = is_two[:, None, :], is_two[None, :, :]
    took_one = i_one | j_one
    took_both = np.where(tied_two, i_one & j_one, (i_one & j_two) | (i_two & j_one))
    after_both = np.where(took_both, three, two)
    return np.where(took_one, after_both, one)
