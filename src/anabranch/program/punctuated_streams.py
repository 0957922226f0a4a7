"""Which streams have punctuations: the rules of *Safe*, section 5.2.

`punctuate` makes them; everything that reads one punctuated stream passes them on. They end where two punctuated
streams meet, since neither's mean anything any more, and where they are removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.program.graph import Node, Punctuate, Union


def carrying_punctuations(nodes: Iterable[Node]) -> set[int]:
    """The operators whose output has punctuations, in an order in which inputs come first."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node.logic, Union) and node.logic.removes:
            continue
        if isinstance(node.logic, Punctuate) or sum(each.id in found for each in node.inputs) == 1:
            found.add(node.id)
    return found
