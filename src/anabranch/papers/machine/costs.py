"""How long a tuple takes, how often a key comes, how much a key keeps.

The resource functions of *Partitioning* (β of state and computation) say how the cost of a tuple and the state
of a key grow with the key's frequency: constant, linear, quadratic. Here both are normalised, so that
the mean cost over the tuples is the region's `cost_s` and the mean state over the keys its `key_bytes`,
whatever grows how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.partitioning.resources import Growth
from anabranch.program.hashing import hash_columns

_BLOCK_MIN, _BLOCK_MAX = 32, 4096


def blocks() -> Iterator[int]:
    """Sizes of blocks of draws: a call of numpy costs as much as a hundred draws, but small worlds need few."""
    size = _BLOCK_MIN
    while True:
        yield size
        size = min(2 * size, _BLOCK_MAX)


class CostSpread(Enum):
    """How the costs of tuples are distributed about their mean."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    """Between nothing and twice the mean."""
    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"
    """σ = 1: one tuple in a hundred takes six times the mean."""
    BIMODAL = "bimodal"
    """Nine of ten tuples take half the mean, the tenth 5.5 times it."""

    def factors(self, generator: np.random.Generator) -> Iterator[float]:
        """Factors of mean 1, for ever."""
        for size in blocks():
            yield from self._block(generator, size).tolist()

    def _block(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]:
        match self:
            case CostSpread.CONSTANT:
                return np.ones(size)
            case CostSpread.UNIFORM:
                return generator.random(size) * 2
            case CostSpread.EXPONENTIAL:
                return generator.standard_exponential(size)
            case CostSpread.LOGNORMAL:
                return generator.lognormal(-0.5, 1.0, size)
            case CostSpread.BIMODAL:
                return np.where(generator.random(size) < 0.1, 5.5, 0.5)


@lru_cache(maxsize=64)
def zipf(domain: int, skew: float) -> NDArray[np.float64]:
    """Frequencies of keys 0, 1, …: the k-th is proportional to 1 / (k + 1) ** skew; skew 0 is uniform."""
    shares = np.arange(1, domain + 1, dtype=np.float64) ** -skew
    shares /= shares.sum()
    shares.setflags(write=False)
    return shares


@lru_cache(maxsize=64)
def key_hashes(domain: int, salt: int = 0) -> NDArray[np.uint64]:
    """The 64-bit hash of every key of a domain, by the hash that the system uses."""
    keys = pa.array(np.arange(domain, dtype=np.int64))
    hashes = hash_columns([keys, pa.array(np.full(domain, salt, dtype=np.int64))])
    hashes.setflags(write=False)
    return hashes


def cost_factors(frequencies: NDArray[np.float64], growth: Growth) -> list[float]:
    """By which the cost of a tuple of each key is multiplied."""
    factors = frequencies**growth.order
    mean = float((factors * frequencies).sum())
    return (factors / mean).tolist()


def state_bytes(frequencies: NDArray[np.float64], growth: Growth, key_bytes: float) -> list[float]:
    """The state of each key."""
    factors = frequencies**growth.order
    mean = float(factors.mean())
    return (factors / mean * key_bytes).tolist()


def gaps(generator: np.random.Generator, random_arrivals: bool) -> Iterator[float]:
    """Times between arrivals, in units of the mean time: all 1, or those of a Poisson process."""
    for size in blocks():
        if not random_arrivals:
            yield from [1.0] * size
        else:
            yield from generator.standard_exponential(size).tolist()


def jitters(generator: np.random.Generator, delay_s: float, jitter: float) -> Iterator[float]:
    """Network delays: the delay, plus an exponential part of `jitter` times it."""
    for size in blocks():
        yield from (delay_s * (1 + jitter * generator.standard_exponential(size))).tolist()


def finite(name: str, value: float, least: float = 0.0) -> None:
    """Raise unless a number of a description makes sense."""
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} must be a number of at least {least}, found {value}")
