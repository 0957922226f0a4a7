"""Sketches: how many different values, and which quantiles, in little memory and with a known error.

The sketches are those of Apache DataSketches (HyperLogLog, t-digest). One thread's result must also be that of many,
wherever epochs are cut and state is written. So a sketch is bytes, and values are put into it in blocks of a fixed
size, by their number in the window: what it holds is a function of the values in their order, and of nothing else.

    values of a window   256 ─► sketch   256 ─► sketch   … the rest waits in a list
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.errors import ProgramError
from anabranch.operators.key_columns import text_of_key

BLOCK = 256
"""So many values are put into a sketch at a time."""


def check_library(method: str) -> None:
    """An error that says what to do if the library of sketches is not there."""
    try:
        import datasketches  # noqa: F401
    except ImportError:
        raise ProgramError(
            f"{method} needs the package datasketches, here and where tasks run: pip install 'anabranch[sketches]'"
        ) from None


def with_distinct(precision: int, sketch: bytes, values: Sequence[Any]) -> bytes:
    """A sketch of different values, with more."""
    return bytes(_distinct(precision, sketch, values).serialize_updatable())


def distinct_estimate(precision: int, sketch: bytes, values: Sequence[Any]) -> int:
    """How many different values there are, about."""
    return round(_distinct(precision, sketch, values).get_estimate())


def _distinct(precision: int, sketch: bytes, values: Sequence[Any]) -> Any:
    from datasketches import HLL_8, hll_sketch

    found = hll_sketch.deserialize(sketch) if sketch else hll_sketch(precision, HLL_8)
    for value in values:
        plain = isinstance(value, (int, float, str)) and value == value
        found.update(value if plain else text_of_key(value))
    return found


def with_quantiles(precision: int, sketch: bytes, values: Sequence[float]) -> bytes:
    """A sketch of a distribution, with more values."""
    return bytes(_digest(precision, sketch, values).serialize())


def quantile_estimates(
    precision: int, ranks: Sequence[float], sketch: bytes, values: Sequence[float]
) -> list[float] | None:
    """The values at some ranks, about; null if there are none."""
    found = _digest(precision, sketch, values)
    return None if found.is_empty() else [found.get_quantile(rank) for rank in ranks]


def _digest(precision: int, sketch: bytes, values: Sequence[Any]) -> Any:
    from datasketches import tdigest_double

    found = tdigest_double.deserialize(sketch) if sketch else tdigest_double(precision)
    for value in values:
        found.update(float(value))
    return found
