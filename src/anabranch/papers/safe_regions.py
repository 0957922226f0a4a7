"""The regions of *Safe*, sections 3.1, 3.5 and 5.3: as the paper forms them, not as Anabranch lays programs out.

Beside what makes operators safe (`compiler.layout.chains`), a region of the paper has one entry and one exit; operators
that must share a process are in one region or in none; operators that expect punctuations are in the region of the
operator that makes them.

    draft = []                        left to right: an operator joins the region of its predecessor
    for operator in order:            if every condition holds, else it starts a region, else it is
        join, start, or stay out      sequential. Then the two conditions that span operators are
    check fusion, punctuation         checked; where one fails, the region is cut before the first of
    on failure: cut or ban, again     them, and if that does not help they stay out of all regions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anabranch.compiler.layout.chains import Formation, Graph, form_chains, not_parallel
from anabranch.compiler.layout.punctuations import check_punctuations
from anabranch.program.graph import Node


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the paper's compiler is told about a program, beside the program.

    Attributes
    ----------
    partitioned : mapping
        Source → the columns by which it is itself split into disjoint streams.
    parallel_sinks : frozenset of str
        The outputs whose sink takes tuples from every channel, in no order among channels.
    fused : mapping
        Operator → a mark; those with one mark must share a process.
    emission_index : bool
        Packets carry the place of a tuple among those with its sequence number, so that a shuffle after a
        prolific region keeps their order. Without it such regions are merged and split again. It is ours.
    fans : bool
        A region may begin with an operator that reads several streams, and end with one whose stream is read by
        several. It is ours.
    """

    partitioned: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    parallel_sinks: frozenset[str] = frozenset()
    fused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    emission_index: bool = False
    fans: bool = False


@dataclasses.dataclass(frozen=True)
class Ban:
    """An operator stays out of all regions."""

    reason: str
    remedy: str


def form_regions(graph: Graph, rules: Rules) -> tuple[Formation, dict[int, Ban]]:
    """The regions of a program; and what conditions that span operators kept out of them."""
    generators = check_punctuations(graph.order, graph.models)
    cuts: dict[int, str] = {}
    banned: dict[int, Ban] = {}

    def kept_out(node: Node) -> str | None:
        if node.id in banned:
            return banned[node.id].reason
        return not_parallel(graph.models[node.id]) or _fan(graph, rules, node)

    for _ in range(4 * len(graph.order) + 8):
        formation = form_chains(graph, kept_out, cuts)
        if _settle_fusion(graph, rules, formation, cuts, banned) and _settle_punctuation(
            graph, formation, generators, cuts, banned
        ):
            return formation, banned
    raise AssertionError(f"region formation does not settle: cuts {cuts}, banned {banned}")


def _fan(graph: Graph, rules: Rules, node: Node) -> str | None:
    if graph.fan_in(node) > 1 and not rules.fans:
        return f"it has {graph.fan_in(node)} inputs: a region has one entry"
    if graph.fan_out(node) > 1 and not rules.fans:
        return f"its output goes {graph.fan_out(node)} ways: a region has one exit"
    return None


def _between(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Everything on a path from one of these to another."""
    ids = {node.id for node in nodes}
    below: set[int] = set()
    for node in graph.order:
        if any(source.id in ids or source.id in below for source in node.inputs):
            below.add(node.id)
    above: set[int] = set()
    for node in reversed(graph.order):
        if any(each.id in ids or each.id in above for each in graph.consumers[node.id]):
            above.add(node.id)
    return [node for node in graph.order if node.id in below and node.id in above and node.id not in ids]


_UNMARK = "remove the mark"
_PARTITION = "partition what expects the punctuations by a key that all of them share"


# -- operators that must stay together ----------------------------------------------------------------------


def _regions(formation: Formation) -> dict[int, int]:
    return {node.id: place for place, draft in enumerate(formation.drafts) for node in draft.nodes}


def _settle_fusion(
    graph: Graph, rules: Rules, formation: Formation, cuts: dict[int, str], banned: dict[int, Ban]
) -> bool:
    """Operators with one mark are in one region or in none. False if a new round is needed."""
    groups: dict[str, list[Node]] = {}
    for node in graph.order:
        if node.name in rules.fused:
            groups.setdefault(rules.fused[node.name], []).append(node)
    where = _regions(formation)
    for mark, nodes in groups.items():
        if len(nodes) < 2 or len({where.get(node.id) for node in nodes}) == 1:
            continue
        first = nodes[0]
        others = ", ".join(node.name for node in nodes[1:])
        if first.id not in cuts and first.id in where and formation.drafts[where[first.id]].nodes[0] is not first:
            cuts[first.id] = f"it must share a process with {others} ({mark!r})"
            return False
        for node in nodes:
            rest = ", ".join(each.name for each in nodes if each is not node)
            blocked = _what_parts(graph, formation, nodes)
            reason = f"it must share a process with {rest} ({mark!r}), but {blocked}"
            banned.setdefault(node.id, Ban(reason, _UNMARK))
        for node in _between(graph, nodes):
            reason = f"it stands between operators that share a process ({mark!r})"
            banned.setdefault(node.id, Ban(reason, _UNMARK))
        return False
    return True


def _what_parts(graph: Graph, formation: Formation, nodes: list[Node]) -> str:
    for node in [*_between(graph, nodes), *nodes]:
        if node.id in formation.outside:
            return f"{node.name} is in the way: {formation.outside[node.id]}"
    borders = [
        border
        for border in formation.borders
        if border.before in {n.name for n in _between(graph, nodes)} | {n.name for n in nodes}
    ]
    return f"no region can hold both: {borders[0].reason}" if borders else "no region can hold both"


def _settle_punctuation(
    graph: Graph,
    formation: Formation,
    dependents: dict[int, list[Node]],
    cuts: dict[int, str],
    banned: dict[int, Ban],
) -> bool:
    """Who needs punctuations made in a region is in that region. False if a new round is needed."""
    where = _regions(formation)
    for node in graph.order:
        if node.id not in where or node.id not in dependents:
            continue
        apart = [each for each in dependents[node.id] if where.get(each.id) != where[node.id]]
        if not apart:
            continue
        names = ", ".join(each.name for each in apart)
        reason = f"{names} needs its punctuations and must be in its region"
        if node.id not in cuts and formation.drafts[where[node.id]].nodes[0] is not node:
            cuts[node.id] = reason
        else:
            why = formation.outside.get(apart[0].id) or _border_reason(formation, apart[0])
            banned.setdefault(node.id, Ban(f"{reason}, but {why}", _PARTITION))
        return False
    return True


def _border_reason(formation: Formation, node: Node) -> str:
    found = [border.reason for border in formation.borders if border.before == node.name]
    return found[0] if found else "it is in another region"
