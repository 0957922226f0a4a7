"""Whether a copy of the user's object is like the original in all that the two lead to.

A copy is made by pickling, and classes have many ways to take part in that: `__reduce__`, `__getstate__`, hooks that
run when a subclass is made, attributes that are those of another object. What is taken over must be whole, so the two
are walked side by side, along all ways (`object_parts.children`):

    original ──way──► a          the same ways lead on from a and from b;
    copy     ──way──► b          what is one object in the original is one in the copy, and what is two is two;
                                 values without identity are equal; nothing that can change belongs to both
"""

from __future__ import annotations

import enum
import functools
import gc
import types
from typing import Any

from anabranch.program.kept_cache import KeptCache
from anabranch.program.object_parts import (
    Path,
    Step,
    attribute_dict,
    children,
    is_atom,
    is_lasting_object,
    is_library,
    is_plain_instance,
)


def unlike(original: Any, copied: Any, as_copied: bool) -> Path | None:
    """The way to the first place where a copy is not like the original; None if there is none.

    With `as_copied` the copy has globals and classes of its own.
    """
    hiding: list[tuple[Path, Any]] = []
    there: dict[int, int] = {}
    back: dict[int, int] = {}
    keeps: list[Any] = []
    waiting: list[tuple[Path, Any, Any]] = [((), original, copied)]

    def is_one(a: Any, b: Any) -> bool:
        keeps.append((a, b))
        return there.setdefault(id(a), id(b)) == id(b) and back.setdefault(id(b), id(a)) == id(a)

    while waiting:
        path, a, b = waiting.pop()
        if is_atom(a) or is_atom(b):
            if type(a) is not type(b) or not (a == b or a != a):
                return path
            continue
        if a is b:
            if not is_lasting_object(a) and not _belongs_to_all(a):
                return path
            continue
        if path[-1:] == (("closure", "__class__"),) and type(a) is type(b) is types.CellType:
            # What super() looks at: all methods of a class have one, and nobody puts anything else there.
            waiting.append(((*path, ("item", 0)), a.cell_contents, b.cell_contents))
            continue
        known = id(a) in there
        if not is_one(a, b):
            return path
        if known:
            continue
        if type(a) is functools._lru_cache_wrapper and type(b) is KeptCache:
            waiting.append((path, a.__wrapped__, b.__wrapped__))
            continue
        if type(a).__qualname__ != type(b).__qualname__:
            return path
        if is_plain_instance(type(a)) and not is_one(attribute_dict(a), attribute_dict(b)):
            return path
        if isinstance(a, (set, frozenset)):
            continue  # in any order
        one, other = list(children(a, as_copied)), list(children(b, as_copied))
        if isinstance(a, type):  # the order of names in a class is nobody's business
            one, other = sorted(one, key=_by_step), sorted(other, key=_by_step)
        if [step for step, _ in one] != [step for step, _ in other]:
            return path
        if not one:
            hiding.append((path, a))
        waiting.extend(((*path, step), child, its) for (step, child), (_, its) in zip(one, other, strict=True))
    return next((path for path, a in hiding if _leads_into(a, there)), None)


def _leads_into(value: Any, known: dict[int, int]) -> bool:
    """Whether an object that shows nothing of what it holds leads to something that others hold: an iterator of a dict.

    Whatever a copy of it leads to need not be what the copies of the others hold.
    """
    held = [each for each in gc.get_referents(value) if each is not attribute_dict(value)]
    return any(id(each) in known and not isinstance(each, type) for each in held)


def _by_step(child: tuple[Step, Any]) -> str:
    return repr(child[0])


def _belongs_to_all(value: Any) -> bool:
    """Whether an object is there once for all of the process, known by a name, and holds nothing of the user's."""
    if type(value).__module__ == "logging":
        return all(is_library(type(each).__module__) for each in _handlers(value))
    if isinstance(value, enum.Enum):
        return True
    return is_library(type(value).__module__) and not any(True for _ in children(value))


def _handlers(logger: Any) -> list[Any]:
    """All that take what is written to a logger."""
    found: list[Any] = []
    at = logger
    while at is not None:
        found += [at, *getattr(at, "handlers", ()), *getattr(at, "filters", ())]
        at = getattr(at, "parent", None) if getattr(at, "propagate", False) else None
    return found
