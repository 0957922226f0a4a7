"""An operator in one channel, taken over whole: everything its object holds is the state of one key, the empty one.

For operators whose state is not partitioned, or of which it is not known: they see all tuples, in the order of one
thread, and what they keep is kept with all that shares it (`program/object_graph.py`).
"""

from __future__ import annotations

from typing import Any

from anabranch.program.calling import kept
from anabranch.program.graph import Keyed, StateField
from anabranch.program.object_graph import ObjectGraph, Prototype


class WholeObject:
    """Runs the author's operator. A prototype of `Keyed` logic with one state field.

    Parameters
    ----------
    prototype : Prototype
    method : str or None
        What is called; None: the object itself.
    mode : str
        ``map``, ``filter``, or anything else for what emits by itself.
    """

    def __init__(self, prototype: Prototype, method: str | None, mode: str) -> None:
        self.prototype = prototype
        self.method = method
        self.mode = mode
        self.graph: ObjectGraph | None = None

    def __repr__(self) -> str:
        return f"WholeObject({self.prototype.name})"

    def process(self, t: Any) -> Any:
        """Take one tuple; emit what the author's operator emits."""
        if self.graph is None:
            self.graph = ObjectGraph()
        target = self.graph.live(self.prototype)
        found = (target if self.method is None else getattr(target, self.method))(t)
        if self.mode == "filter":
            return [t] if kept(found) else []
        return [found] if self.mode == "map" else found


def whole(target: Any, method: str | None, mode: str) -> Keyed:
    """The logic of an operator that is taken over whole; StateError if something it holds cannot be kept."""
    prototype = Prototype(target)
    prototype.check()
    return Keyed(WholeObject(prototype, method, mode), "process", (StateField("graph"),))
