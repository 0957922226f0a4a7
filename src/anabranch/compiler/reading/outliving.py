"""What the code puts where it outlives the call, and whether it could be kept from one epoch to the next.

An operator that is taken over whole keeps whatever it holds, as data. Iterators, generators, files, locks and
connections are none: where the code is seen to make one and to leave it in an attribute, a container or a global, the
operator is refused before anything starts. Where it cannot be seen what is left there, `explain` says so.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types

from anabranch.compiler.reading import known
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.settings_calls import settings_changed
from anabranch.compiler.reading.values import Iterator, Kept, NoneType, Object, Site, Value
from anabranch.program.object_parts import is_kept_whole, is_library
from anabranch.program.object_pieces import LIBRARY_CLASSES, PIECES
from anabranch.program.object_reach import code_of

#: Functions whose results hold something of the process or of the machine; named, so that nothing is loaded for them.
_HANDLES = (
    *("builtins.open", "os.popen", "os.fdopen", "os.scandir", "socket.create_connection", "sqlite3.connect"),
    *("threading.Lock", "threading.RLock", "urllib.request.urlopen", "tempfile.TemporaryFile"),
    *(
        f"hashlib.{name}"
        for name in ("new", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")
    ),
    "hmac.new",
    *("tempfile.NamedTemporaryFile", "mmap.mmap", "csv.reader", "csv.writer", "asyncio.new_event_loop"),
)
_KEPT: frozenset[type] = (
    known.KEEPABLE | {*PIECES, *LIBRARY_CLASSES.values()} | {functools.partial, types.SimpleNamespace, itertools.count}
)


def look_at_what_outlives(reading: Reading) -> None:
    """Facts about what is left behind: what cannot be kept, and what cannot be seen."""
    settings_changed(reading)
    for value, path, location, made_by in reading.outliving:
        what = _made(reading, id(made_by)) or _left_in(reading, value, set())
        if what is not None:
            reading.facts.not_kept.setdefault(f"{path} gets {what}", location)
        elif value.types is None and not value.is_nothing:
            reading.facts.unseen.setdefault(path, location)


def _made(reading: Reading, made_by: int) -> str | None:
    """What a call gives that cannot be kept, by the expression that makes it; None if nothing is known against it."""
    found = reading.called.get(made_by)
    if isinstance(found, type):
        if issubclass(found, BaseException):
            return f"a {found.__qualname__}"
        if not is_library(found.__module__) or found in _KEPT:
            return None
        of_the_machine = known.impurity_of(found) is not None or found.__module__ == "queue"
        if not of_the_machine and is_kept_whole(found, code_of(reading.operator, in_globals=True)[0].values()):
            return None
        return f"a {found.__module__}.{found.__qualname__}"
    for name in _HANDLES if found is not None else ():
        module, _, last = name.rpartition(".")
        if getattr(sys.modules.get(module), last, None) is found:
            return f"what {name}() gives"
    return None


def _left_in(reading: Reading, value: Value, seen: set[Object]) -> str | None:
    """What cannot be kept that a value is, or has inside: for sure. What only may hold such is kept if it can be."""
    sites = [each for each in value.objects if isinstance(each, (Site, Kept)) and each in reading.heap.objects]
    kinds = (value.types or frozenset()) - {NoneType}
    if kinds == {Iterator}:
        made = {reading.called.get(getattr(each, "node", 0)) for each in sites}
        if made != {itertools.count}:
            return "a generator" if any(each in reading.generators for each in sites) else "an iterator"
    if kinds and all(issubclass(kind, BaseException) for kind in kinds):
        return "an exception"
    for each in sites:
        if each not in seen:
            seen.add(each)
            made_here = (
                _made(reading, each.node) if isinstance(each, Site) and each.role in ("call", "instance") else None
            )
            if made_here is not None:
                return made_here
            held = reading.heap.objects[each]
            for inner in (held.content, *held.items.values(), *(held.parts or {}).values(), *held.attributes.values()):
                found = _left_in(reading, inner, seen)
                if found is not None:
                    return found
    return None
