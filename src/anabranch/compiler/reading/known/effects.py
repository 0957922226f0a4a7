"""What an entry of the tables says: the effect of calling a function that is known."""

from __future__ import annotations

import dataclasses

from anabranch.compiler.reading.values import PLAIN, Iterator, Types


@dataclasses.dataclass(frozen=True)
class Effect:
    """What a known function does.

    Attributes
    ----------
    result : frozenset of type
        The types its result may have.
    mutates : tuple of int
        The arguments it changes, by place.
    calls : tuple of (int or str)
        The arguments it calls, by place or keyword.
    aliases : bool
        The result may hold its arguments, or things out of them.
    iterates : bool
        It goes through its arguments in their order: matters for sets and iterators.
    text : bool
        The same arguments always give the same result, so a key may be made with it.
    """

    result: Types = PLAIN
    mutates: tuple[int, ...] = ()
    calls: tuple[int | str, ...] = ()
    aliases: bool = False
    iterates: bool = False
    text: bool = True


def only(*kinds: type) -> Types:
    return frozenset(kinds)


INT, FLOAT, STR, BOOL, BYTES = only(int), only(float), only(str), only(bool), only(bytes)
ITERATOR = only(Iterator)
