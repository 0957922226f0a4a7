"""A progress display for the terminal."""

from __future__ import annotations

import sys
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.api.query import StreamingQuery


def show_progress(query: StreamingQuery, *, every: float = 0.2, to: IO[str] | None = None) -> None:
    """Print a line for each epoch until the query ends. It does not raise: `awaitTermination` does."""
    out = to or sys.stdout
    shown = -1
    total = 0
    while True:
        active = query.isActive
        for each in query.recentProgress:
            if each["epoch"] > shown:
                shown = each["epoch"]
                total += each["rows_in"]
                seconds = each["duration_ms"]["total"] / 1000
                rate = each["rows_in"] / seconds if seconds else 0.0
                out.write(
                    f"  epoch {each['epoch']:>4}  {each['rows_in']:>10,} rows in  {each['rows_out']:>9,} out  "
                    f"{seconds:6.2f} s  {rate:>10,.0f} rows/s  {each['channels']} channels  {total:>12,} rows so far\n"
                )
                out.flush()
        if not active:
            return
        time.sleep(every)
