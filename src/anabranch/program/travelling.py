"""A program on its way to the workers, with the settings its code was written under.

Code of the user's is sent with the globals it names, as they are when the query starts: a worker that imported the
module anew would have those of the file, and not what a script has set since. What holds in the thread that starts the
query goes along for the same reason, its decimal context for one (`engine/thread_settings.py`). What no copy can be
made of (a lock, a connection) stays a matter of the worker's own import, and so do the other globals of that program.

The text of the files that code of the user's is from goes along as well: what is rewritten in a worker is rewritten
from its source, and a worker does not have a notebook's cells, nor the script on another host.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anabranch.errors import ProgramError, StateError
from anabranch.program.graph import Node
from anabranch.program.object_parts import is_library
from anabranch.program.object_reach import code_of
from anabranch.program.whole_copies import loaded, pickled_whole

_LONGEST_SOURCE = 1_000_000  # characters of a file: longer ones are generated, or data


class Settings(Protocol):
    """What holds in a thread, and reaches the workers with the program."""

    def naming(self, target: Any) -> Settings:
        """With what code of the user's names of it."""

    def check_named(self) -> None:
        """ProgramError if something is named that only travels with the globals of the code."""

    def hold(self) -> None:
        """Have this thread hold to them."""


def packed(program: Any, nodes: Iterable[Node], settings: Settings) -> bytes:
    """A program as bytes; `nodes` are its operators, `settings` is what holds in the thread that they run for."""
    nodes = list(nodes)
    names = [node.title for node in nodes]
    logics = [node.logic for node in nodes]
    settings = settings.naming(logics)
    notes_results = any(node.unfollowed for node in nodes)
    try:
        whole = (program, settings, sources_of(logics))
        found, has_own_globals = pickled_whole(whole, logics, notes_results=notes_results)
        if not has_own_globals:
            settings.check_named()
        return found
    except StateError as problem:
        for node in nodes:
            try:
                target = getattr(node.logic, "prototype", getattr(node.logic, "function", node.logic))
                pickled_whole(node.logic, target)
            except StateError as own:
                raise ProgramError(f"operator {node.title}: {own}") from problem
        raise ProgramError(f"the program with the operators {', '.join(names)}: {problem}") from problem


def unpacked(data: bytes) -> tuple[Any, Settings]:
    """The program, and what is to hold where it runs."""
    program, settings, sources = loaded(data)
    give_sources(sources)
    return program, settings


def sources_of(target: Any) -> dict[str, str]:
    """The texts of the files that the user's functions are from, by the names that their code has."""
    _, functions = code_of(target)
    found: dict[str, str] = {}
    for function in functions:
        name = function.__code__.co_filename
        if name not in found and not is_library(function.__module__):
            text = "".join(linecache.getlines(name, function.__globals__))
            if 0 < len(text) <= _LONGEST_SOURCE:
                found[name] = text
    return found


def give_sources(sources: Mapping[str, str]) -> None:
    """Have this process take the text of files from here; who rewrites code checks that it is that of the code."""
    for name, text in sources.items():
        lines = text.splitlines(keepends=True)
        if linecache.getlines(name) != lines:
            # Without a time of change: the entry is not compared with a file.
            linecache.cache[name] = (len(text), None, lines, name)
