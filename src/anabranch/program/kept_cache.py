"""A cached function whose results are kept: what `functools.lru_cache` made, in a form that can be taken down.

The library's own cache cannot be looked into, so that an operator which is taken over whole would begin every epoch
with an empty one. For a function that always gives the same that is a matter of speed; for any other it decides what
the operator emits. So its copy has this in the place of the library's: the same results, forgotten in the same order.
"""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

from anabranch.errors import StateError


class KeptCache:
    """Stands for a cached function; `results` are the last `maxsize` of them, the one used last at the end."""

    def __init__(self, function: Any, maxsize: int | None, typed: bool) -> None:
        self.__wrapped__ = function
        self.maxsize, self.typed = maxsize, typed
        self.hits = self.misses = 0
        self.results: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        key = self._key(arguments, named)
        if key in self.results:
            self.hits += 1
            self.results.move_to_end(key)
            return self.results[key]
        self.misses += 1
        found = self.__wrapped__(*arguments, **named)
        if self.maxsize != 0 and key not in self.results:
            self.results[key] = found
            if self.maxsize is not None and len(self.results) > self.maxsize:
                self.results.popitem(last=False)
        return found

    def _key(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not named and not self.typed and len(arguments) == 1 and type(arguments[0]) in (int, str):
            return arguments[0]  # as the library has it: 1 and 1.0 are two
        key = (arguments, tuple(named.items()))
        return (*key, tuple(map(type, arguments)), tuple(map(type, named.values()))) if self.typed else key

    def cache_info(self) -> Any:
        """As the library's."""
        return functools._CacheInfo(self.hits, self.misses, self.maxsize, len(self.results))

    def cache_parameters(self) -> dict[str, Any]:
        """As the library's."""
        return {"maxsize": self.maxsize, "typed": self.typed}

    def cache_clear(self) -> None:
        """As the library's."""
        self.hits = self.misses = 0
        self.results.clear()


def kept_cache(cached: Any) -> tuple[Any, tuple[Any, ...]]:
    """How the copy of a cached function is made: a function, and its arguments."""
    held = cached.cache_info().currsize
    if held:
        name = getattr(cached, "__qualname__", "a cached function")
        raise StateError(
            f"the cache of {name} holds {held} results already, which cannot be looked into; call "
            f"{name}.cache_clear() before the query starts"
        )
    parameters = cached.cache_parameters()
    return KeptCache, (cached.__wrapped__, parameters["maxsize"], parameters["typed"])
