"""What an operator's code can reach and is not kept with its object: if it changes, it would be lost without a word.

An operator in one channel is taken over whole (`object_graph`): what its object holds is kept. Its code may also change
what no object holds, an attribute of a class, say, or a global that was not seen to change. So all that is looked at
when an epoch begins, and again when its state is saved.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anabranch.program.belongings import Belongings, contents_of, is_class_data
from anabranch.program.object_parts import attributes_of, is_library

_MISSING = object()


class Outside(Belongings):
    """Takes down what is outside of an operator's object.

    Parameters
    ----------
    target : object
        The operator's object.
    kept : iterable
        What is kept with it.
    """

    def __init__(self, target: Any, kept: Iterable[Any]) -> None:
        self._kept = {id(each) for each in kept}
        self._looks: list[Callable[[], str]] = []
        super().__init__([target])

    def changed(self) -> str:
        """What changed since, for people; empty if nothing did."""
        return next((what for look in self._looks if (what := look())), "")

    def _class(self, kind: type) -> list[Any]:
        def held() -> dict[str, Any]:
            return {name: value for name, value in vars(kind).items() if is_class_data(name, value)}

        self._look(held, lambda name: f"{kind.__qualname__}.{name}")
        return super()._class(kind)

    def _globals(self, function: types.FunctionType) -> list[Any]:
        space = function.__globals__

        def held() -> dict[str, Any]:  # of a global only what it holds can be kept, not what its name stands for
            return {name: value for name, value in space.items() if not name.startswith("__")}

        self._look(held, lambda name: f"the global {name}")
        return super()._globals(function)

    def _contents(self, value: Any) -> Callable[[], None] | None:
        own = type(value)
        if not is_library(own.__module__):
            self._looks.append(lambda: "" if type(value) is own else f"the class of a {own.__qualname__}")
        if id(value) not in self._kept and not isinstance(value, types.FunctionType):
            kind = type(value)
            inside = contents_of(value)
            if inside is not None:
                before = _frozen(inside)
                self._looks.append(
                    lambda: "" if _frozen(contents_of(value)) == before else f"a {kind.__qualname__} ({value!r:.60})"
                )
            if not is_library(kind.__module__):
                self._look(lambda: dict(attributes_of(value)), lambda name: f".{name} of a {kind.__qualname__}")
        return super()._contents(value)

    def _look(self, held: Callable[[], dict[str, Any]], told: Callable[[str], str]) -> None:
        before = held()

        def look() -> str:
            now = held()
            for name in [*now, *(name for name in before if name not in now)]:
                one, other = before.get(name, _MISSING), now.get(name, _MISSING)
                if one is not other and not _is_same_atom(one, other):
                    return told(name)
            return ""

        self._looks.append(look)


def _is_same_atom(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, (int, float, str, bytes)) and one == other


def _frozen(inside: Any) -> Any:
    """Contents in a form that can be compared without calling code of the user's."""
    if isinstance(inside, (list, set)):
        return [_frozen(each) if isinstance(each, tuple) else id(each) for each in inside]
    if isinstance(inside, tuple):
        return tuple(map(id, inside))
    if isinstance(inside, np.ndarray):
        return inside.dtype.str, inside.shape, inside.tobytes() if not inside.dtype.hasobject else None
    return repr(inside)
