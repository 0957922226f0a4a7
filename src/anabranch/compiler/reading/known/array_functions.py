"""Functions of numpy that return new arrays. Arguments named `out` are refused where they are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.compiler.reading.known.effects import Effect
from anabranch.compiler.reading.values import PLAIN

ARRAY_FUNCTIONS: dict[Any, Effect] = {}
for _name in (
    "array",
    "asarray",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "dot",
    "mean",
    "median",
    "std",
    "var",
    "sum",
    "prod",
    "min",
    "max",
    "argmin",
    "argmax",
    "argsort",
    "sort",
    "clip",
    "where",
    "concatenate",
    "stack",
    "cumsum",
    "cumprod",
    "diff",
    "percentile",
    "quantile",
    "round",
    "abs",
    "unique",
    "interp",
    "histogram",
    "polyfit",
    "polyval",
    "outer",
    "inner",
    "cross",
    "isclose",
    "allclose",
    "any",
    "all",
    "searchsorted",
    "digitize",
    "count_nonzero",
    "average",
    "corrcoef",
    "cov",
    "convolve",
    "zeros_like",
    "ones_like",
    "empty_like",
    "isin",
    "ptp",
    "nanmean",
    "nansum",
    "nanmax",
    "nanmin",
    "trapezoid",
    "real",
    "imag",
    "angle",
    "bincount",
    "empty",
    "append",
    "full_like",
    "atleast_1d",
    "hstack",
    "vstack",
    "roll",
    "flip",
    "sign",
    "nanstd",
    "nanmedian",
    "cumulative_sum",
):
    if hasattr(np, _name):
        ARRAY_FUNCTIONS[getattr(np, _name)] = Effect(PLAIN, aliases=True, iterates=True, text=False)
#: Functions whose result is always a new array: it holds the elements of the arguments, but is no view of them.
NEW_ARRAYS = tuple(
    getattr(np, name)
    for name in (
        "array",
        "zeros",
        "ones",
        "full",
        "arange",
        "linspace",
        "sort",
        "where",
        "concatenate",
        "stack",
        "bincount",
        "empty",
        "append",
        "full_like",
        "hstack",
        "vstack",
    )
)
for _name in ("fft", "ifft", "rfft", "irfft"):
    ARRAY_FUNCTIONS[getattr(np.fft, _name)] = Effect(PLAIN)
ARRAY_FUNCTIONS[np.linalg.norm] = ARRAY_FUNCTIONS[np.linalg.det] = Effect(PLAIN)
