"""Arrays that show each other's cells: which is the whole, and which are parts of it.

Two arrays of numpy may share memory: a row and its table, a view of another shape. Kept each by itself they would part.
So of those that share one is kept whole, and the others as where in it they begin and how they go through it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from anabranch.errors import StateError
from anabranch.program.array_types import is_kept_type, type_text
from anabranch.program.object_filling import Reference


def tie_arrays(nodes: list[Any], objects: list[Any]) -> None:
    """Make nodes of arrays that share memory parts of one that covers them; nodes are numbered as objects are."""
    arrays = [(number, each) for number, each in enumerate(objects) if isinstance(each, np.ndarray)]
    for group in _sharing(arrays):
        number, whole = _covering(group, nodes, objects)
        begins = np.lib.array_utils.byte_bounds(whole)[0]
        for other, each in group:
            if other == number:
                continue
            if nodes[other][0] is not None:
                raise _refused(each, whole)  # the copy has an array with cells of its own in that place
            offset = each.__array_interface__["data"][0] - begins
            fixed = [] if each.flags.writeable else ["fixed"]
            shown = [Reference(number), type_text(each.dtype), list(each.shape), list(each.strides), offset, *fixed]
            nodes[other] = [None, "part of an array", shown]


def refuse_overlaps(arrays: list[np.ndarray]) -> None:
    """Arrays that share their memory would not in a copy."""
    for group in _sharing(list(enumerate(arrays))):
        raise _refused(group[0][1], group[1][1])


def _sharing(arrays: list[tuple[int, np.ndarray]]) -> list[list[tuple[int, np.ndarray]]]:
    """Those that may share memory, together: sorted by where they begin, each with those before it that reach there."""
    bounds = sorted(((*np.lib.array_utils.byte_bounds(each), number, each) for number, each in arrays if each.size))
    groups: list[list[tuple[int, np.ndarray]]] = []
    reach = -1
    for low, high, number, each in bounds:
        if low >= reach:
            groups.append([])
        groups[-1].append((number, each))
        reach = max(reach, high)
    return [group for group in groups if len(group) > 1]


def _covering(group: list[tuple[int, np.ndarray]], nodes: list[Any], objects: list[Any]) -> tuple[int, np.ndarray]:
    """The array of a group that has all cells of the others; one that nobody names may have to be kept for that."""
    bounds = [np.lib.array_utils.byte_bounds(each) for _, each in group]
    low, high = min(begin for begin, _ in bounds), max(end for _, end in bounds)
    # Rather one that the copy has, too: it stays in its place.
    for number, each in sorted(group, key=lambda one: nodes[one[0]][0] is None):
        if nodes[number][1] == "ndarray" and _covers(each, low, high):
            return number, each
    owner = group[0][1]
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if not _covers(owner, low, high) or not is_kept_type(owner.dtype):
        raise _refused(group[0][1], group[1][1])
    order: Literal["C", "F"] = "C" if owner.flags.c_contiguous else "F"
    nodes.append([None, "ndarray", [type_text(owner.dtype), list(owner.shape), owner.tobytes(order=order), order]])
    objects.append(owner)
    return len(nodes) - 1, owner


def _covers(array: np.ndarray, low: int, high: int) -> bool:
    begin, end = np.lib.array_utils.byte_bounds(array)
    return (array.flags.c_contiguous or array.flags.f_contiguous) and begin <= low and high <= end


def _refused(one: np.ndarray, other: np.ndarray) -> StateError:
    return StateError(
        f"two arrays of its state share their memory (shapes {one.shape} and {other.shape}); read back they would not. "
        "Keep one of them, or a copy."
    )
