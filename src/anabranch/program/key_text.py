"""A text for a computed key: two keys have one text exactly if a dict takes them for the same.

Keys that the compiler accepts are of one known type each: whole numbers, texts, bytes, booleans, dates, instants,
decimals, None, and tuples of these. Their own equality is followed, not their form: instants in different zones and
decimals with different zeros may be equal.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any


def key_text(key: Any) -> str:
    """The text of a key.

    Examples
    --------
    >>> key_text(decimal.Decimal("1.50")) == key_text(decimal.Decimal("1.5"))
    True
    >>> key_text(("a", 1)) == key_text(("a", 2))
    False
    """
    return repr(_canonical(key))


def _canonical(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_canonical, key))
    if isinstance(key, datetime.datetime):
        # Aware ones are equal if they are the same instant, naive ones if they read the same, whatever their fold.
        return (key if key.utcoffset() is None else key.astimezone(datetime.UTC)).replace(fold=0).isoformat()
    if isinstance(key, datetime.date):
        return key.isoformat()
    if isinstance(key, decimal.Decimal):
        return _decimal(key)
    # Not `str`: whole numbers of many thousand digits would be refused.
    return hex(key) if type(key) is int else key


def _decimal(key: decimal.Decimal) -> Any:
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        if exponent != "F":
            raise ValueError("the key is not a number, and would be found again by nobody")
        return (sign, "Infinity")
    whole = "".join(map(str, digits)).lstrip("0")
    short = whole.rstrip("0")
    # 0 and -0 are equal, and so are 1.5 and 1.50.
    return (sign, short, exponent + len(whole) - len(short)) if short else (0, "", 0)
