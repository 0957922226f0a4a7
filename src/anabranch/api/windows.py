"""Windows: which tuples of a key an aggregation takes together."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from anabranch.errors import ProgramError


@dataclasses.dataclass(frozen=True)
class Count:
    """Closes with its n-th tuple."""

    size: int


@dataclasses.dataclass(frozen=True)
class Delta:
    """Closes when a tuple comes whose attribute is more than `size` above that of the window's first tuple."""

    attribute: str
    size: Any


@dataclasses.dataclass(frozen=True)
class Tumbling:
    """Windows that follow one another without overlap."""

    policy: Count | Delta

    def __str__(self) -> str:
        if isinstance(self.policy, Count):
            return f"tumbling(count({self.policy.size}))"
        return f"tumbling(delta({self.policy.attribute!r}, {self.policy.size!r}))"


def count(size: int) -> Count:
    """A window of so many tuples.

    Examples
    --------
    >>> str(tumbling(count(10)))
    'tumbling(count(10))'
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ProgramError(f"count({size!r}): expected a whole number of tuples, 1 or more")
    return Count(size)


def delta(attribute: str, size: int | float | datetime.timedelta) -> Delta:
    """A window over an attribute that grows, such as a time.

    The window holds tuples whose attribute is at most `size` above that of its first tuple; the first
    tuple beyond closes it, and begins the next. A tuple whose attribute lies below the first one's belongs
    to the open window. For timestamps a number means seconds.
    """
    if not isinstance(attribute, str):
        raise ProgramError(f"delta({attribute!r}, …): expected the name of an attribute")
    if isinstance(size, bool) or not isinstance(size, (int, float, datetime.timedelta)):
        raise ProgramError(f"delta({attribute!r}, {size!r}): expected a number or a timedelta")
    seconds = size.total_seconds() if isinstance(size, datetime.timedelta) else size
    if not seconds >= 0:
        raise ProgramError(f"delta({attribute!r}, {size!r}): expected 0 or more")
    return Delta(attribute, size)


def tumbling(policy: Count | Delta | int) -> Tumbling:
    """Windows that follow one another: ``tumbling(count(10))``, ``tumbling(delta("time", 60))``."""
    if isinstance(policy, int) and not isinstance(policy, bool):
        policy = count(policy)
    if not isinstance(policy, (Count, Delta)):
        raise ProgramError(f"tumbling({policy!r}): expected count(n) or delta(attribute, size)")
    return Tumbling(policy)
