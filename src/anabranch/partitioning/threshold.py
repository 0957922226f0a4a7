"""δ: how frequent a key must be to be mapped explicitly. Equations 14 to 17 of the paper.

θ is how far one channel may be from the mean when the imbalance is at its tolerance α. A key that is not
tracked may upset a channel by at most the share σ of that. With mean load L̄ per channel:

    β(δ) ≤ σ θ L̄     constant: δ = 1     linear, L̄ = 1/N: δ = σθ/N     quadratic: δ = √(σθ / (|D| N))

The quadratic one takes Σf² ≥ 1/|D|, which is reached when all keys are equally frequent (the text calls this
an upper bound; it is the lower one, and so the safe one), and tracks far too many keys when they are not. So
once keys have been collected, L̄ is estimated again from them, and δ is raised: the post-processing step.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.resources import Growth, Resources

SIGMA_DEFAULT = 0.1
EPSILON_PER_DELTA = 0.1
"""ε = 0.1 δ reproduces the paper's sizes."""


def deviation(tolerance: float, channels: int) -> float:
    """Θ: how far a channel can be from the mean, relative to it, at an imbalance of `tolerance`."""
    check_channels(channels)
    return tolerance * channels / (tolerance + channels - 1) - 1


def threshold(resources: Resources, channels: int, *, sigma: float = SIGMA_DEFAULT, domain: int | None = None) -> float:
    """Δ of Equation 17: the smallest over the resources.

    Parameters
    ----------
    domain
        |D|, the number of distinct keys, or an upper bound (the number of rows counted is one). Unknown:
        the quadratic resource cannot say anything, and the linear communication decides.
    """
    check_channels(channels)
    if not 0 < sigma <= 1:
        raise ValueError(f"sigma lies in (0, 1], found {sigma}")
    if channels == 1:
        return 1.0  # nothing to balance, nothing to track
    smallest = 1.0
    for growth, tolerance in zip(resources.growths, resources.tolerances, strict=True):
        allowed = sigma * deviation(tolerance, channels)
        if growth is Growth.LINEAR:
            smallest = min(smallest, allowed / channels)
        elif growth is Growth.QUADRATIC and domain is not None:
            smallest = min(smallest, math.sqrt(allowed / (max(domain, 1) * channels)))
    return smallest


def refined_threshold(
    resources: Resources,
    channels: int,
    frequencies: NDArray[np.float64],
    *,
    sigma: float = SIGMA_DEFAULT,
    domain: int | None = None,
) -> float:
    """Δ′: δ after the quadratic post-processing step, given the frequencies of the keys collected with δ.

    The keys not collected are taken to be equally frequent, which makes their load smallest and keeps δ′ on
    the safe side. (The text again says "maximizes"; the estimate in its formula is this one.) Without a
    known domain their load counts as 0.
    """
    if channels == 1 or Growth.QUADRATIC not in resources.growths:
        return threshold(resources, channels, sigma=sigma, domain=domain)
    rest = max(0.0, 1.0 - float(frequencies.sum()))
    rest_keys = 0 if domain is None else domain - len(frequencies)
    total = float(np.square(frequencies).sum()) + (rest * rest / rest_keys if rest_keys > 0 else 0.0)
    smallest = 1.0
    for growth, tolerance in zip(resources.growths, resources.tolerances, strict=True):
        allowed = sigma * deviation(tolerance, channels)
        if growth is Growth.LINEAR:
            smallest = min(smallest, allowed / channels)
        elif growth is Growth.QUADRATIC:
            smallest = min(smallest, math.sqrt(allowed * total / channels))
    return smallest


def check_channels(channels: int) -> None:
    """Raise unless there is at least one channel."""
    if channels < 1:
        raise ValueError(f"at least 1 channel is needed, found {channels}")
