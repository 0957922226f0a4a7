"""Bounds of windows that no column can hold: a tuple whose window has one is refused when it comes, not when it closes.

The first day there is lies in a week that begins before it, the last second in a minute that ends behind it. An
aggregation that gives the bounds of windows cannot have those: the tuple fails, by the policy of the operator, while it
can still be left out.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa

from anabranch.operators.aggregation import CodeDraft
from anabranch.program.event_time import LAST, TimeScale, beyond


def within_times(draft: CodeDraft, attribute: str) -> list[str]:
    """Code that refuses whole numbers that are no times, for windows that follow a watermark."""
    kind = draft.schema.type_of(attribute)
    if not pa.types.is_integer(kind) or kind.bit_width < 64:
        return []
    draft.names |= {"LAST": LAST, "BEYOND": beyond}
    value = draft.column(attribute)
    return [f"if not -LAST <= {value} <= LAST:", f"    raise ValueError(BEYOND({value}))"]


def within_bounds(draft: CodeDraft, attribute: str, start: str, end: str, time: str) -> list[str]:
    """Code that refuses a tuple whose first window starts, or whose last ends, where the column has no value.

    `start`, `end` and `time` are the code of these bounds as whole numbers.
    """
    kind = draft.schema.type_of(attribute)
    asked = [each.bound for each in draft.aggregations]
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return []
    low, high = representable(kind)
    refuse: Callable[..., NoReturn] = functools.partial(_refuse, str(draft.window), attribute, kind)
    draft.names |= {"LOW": low, "HIGH": high, "REFUSE": refuse}
    value = draft.column(attribute)
    lines = [f"if {start} < LOW:", f"    REFUSE({value}, LOW, 'starts before the first', 'start')"]
    lines = lines if "start" in asked else []
    for bound, code in (("end", end), ("time", time)):
        if bound in asked:
            lines += [f"if {code} > HIGH:", f"    REFUSE({value}, HIGH, 'ends behind the last', {bound!r})"]
    return lines


def representable(kind: pa.DataType) -> tuple[int, int]:
    """The first and the last time that a column can hold, as whole numbers."""
    if pa.types.is_integer(kind):
        return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_date(kind):
        scale, ends = TimeScale("date"), (datetime.date.min, datetime.date.max)
    else:
        scale, ends = TimeScale("timestamp_ntz"), (datetime.datetime.min, datetime.datetime.max)
    return scale.number(ends[0]), scale.number(ends[1])


def _refuse(window: str, attribute: str, kind: pa.DataType, value: Any, edge: int, what: str, bound: str) -> NoReturn:
    scale = TimeScale.of(kind, attribute)
    is_number = scale.kind == "number"
    shown, named = (edge, kind) if is_number else (scale.value(edge), scale.kind)
    raise ValueError(
        f"{window}: the window of {attribute}={value!r} {what} {named} there is, {shown}, so agg.window_{bound}() has "
        "no value; do without that, or filter such tuples out before (on_error='skip' drops and counts them)"
    )
