"""Which operators run in parallel together: parallel regions, formed from left to right.

The conditions are those of *Safe*, sections 3.1 and 5.3. For one operator: no state or partitioned state,
and at most one stream in and one out. For a region: keys that have columns in common (their intersection
is the key of the region), and that key forwarded unchanged from the region's start to every operator with
state; operators that must share a process are in one region or in none; operators that expect
punctuations are in the region of the operator that makes them.

    draft = []                        left to right: an operator joins the region of its predecessor
    for operator in order:            if every condition holds, else it starts a region, else it is
        join, start, or stay out      sequential. Then the two conditions that span operators are
    check fusion, punctuation         checked; where one fails, the region is cut before the first of
    on failure: cut or ban, again     them, and if that does not help they stay out of all regions.

A column is followed under every name it takes: a region's key is a set of columns of the region's input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, Node, Source, Spread
from anabranch.program.model import Input, Key, Model, Output, Selectivity, State


@dataclasses.dataclass(frozen=True)
class Atom:
    """A part of a region's key: a column of its input, or a whole expression over it."""

    text: str
    columns: tuple[str, ...]
    is_column: bool = True


@dataclasses.dataclass
class Draft:
    """A region while it is formed."""

    nodes: list[Node]
    key: frozenset[Atom] | None
    #: Columns of the last operator's output that are copies of columns of the region's input.
    origins: dict[str, str]
    #: Who lost a column on the way: for the reason of a boundary.
    lost: dict[str, str]
    #: The operators' own keys by atom, to find a key function again.
    keys: dict[str, Key]


@dataclasses.dataclass(frozen=True)
class Border:
    """Why a region ends where it ends."""

    after: str
    before: str
    reason: str


@dataclasses.dataclass
class Formation:
    """Regions, and for every operator outside them what keeps it there."""

    drafts: list[Draft]
    borders: list[Border]
    outside: dict[int, str]


class Graph:
    """The program with its edges in both directions."""

    def __init__(self, order: list[Node], outputs: list[Node], models: Mapping[int, Model], fans: bool = False) -> None:
        self.order = order
        self.fans = fans
        self.models = models
        self.outputs = {node.id for node in outputs}
        self.consumers: dict[int, list[Node]] = {node.id: [] for node in order}
        self.fed_back: dict[int, int] = {}
        names = {node.name: node for node in order}
        for node in order:
            for source in node.inputs:
                self.consumers[source.id].append(node)
            if isinstance(node.logic, Feedback):
                target = node.logic.name
                if target not in names:
                    known = ", ".join(names)
                    raise ProgramError(
                        f"{node.title}: feeds back from {target!r}, which does not exist; operators: {known}"
                    )
                self.fed_back[names[target].id] = self.fed_back.get(names[target].id, 0) + 1

    def fan_in(self, node: Node) -> int:
        return len(node.inputs)

    def fan_out(self, node: Node) -> int:
        # Where a program ends there is a sink, even if nobody wrote one.
        ends = node.id in self.outputs and type(node.logic).__name__ != "Sink"
        return len(self.consumers[node.id]) + ends + self.fed_back.get(node.id, 0)

    def between(self, nodes: list[Node]) -> list[Node]:
        """Everything on a path from one of these to another."""
        ids = {node.id for node in nodes}
        below: set[int] = set()
        for node in self.order:
            if any(source.id in ids or source.id in below for source in node.inputs):
                below.add(node.id)
        above: set[int] = set()
        for node in reversed(self.order):
            if any(each.id in ids or each.id in above for each in self.consumers[node.id]):
                above.add(node.id)
        return [node for node in self.order if node.id in below and node.id in above and node.id not in ids]


def form_regions(graph: Graph) -> Formation:
    """The regions of a program."""
    generators = check_punctuations(graph)
    cuts: dict[int, str] = {}
    banned: dict[int, str] = {}
    for _ in range(4 * len(graph.order) + 8):
        formation = _form(graph, cuts, banned)
        if _settle_fusion(graph, formation, cuts, banned) and _settle_punctuation(
            graph, formation, generators, cuts, banned
        ):
            return formation
    raise AssertionError(f"region formation does not settle: cuts {cuts}, banned {banned}")


# -- one round, left to right -----------------------------------------------------------------------------


def _form(graph: Graph, cuts: dict[int, str], banned: dict[int, str]) -> Formation:
    formation = Formation([], [], {})
    region_of: dict[int, Draft] = {}
    for node in graph.order:
        reason = banned.get(node.id) or _not_parallel(graph, node)
        before = region_of.get(node.inputs[0].id) if len(node.inputs) == 1 else None
        if reason is not None:
            formation.outside[node.id] = reason
            for source in node.inputs:
                if source.id in region_of:
                    formation.borders.append(Border(source.name, node.name, reason))
            continue
        draft: Draft | None = None
        if before is not None and graph.fan_out(node.inputs[0]) > 1:
            ways = graph.fan_out(node.inputs[0])
            formation.borders.append(Border(node.inputs[0].name, node.name, f"the stream before it goes {ways} ways"))
        elif before is not None and isinstance(node.logic, Spread):
            formation.borders.append(Border(node.inputs[0].name, node.name, "tuples are spread here"))
        elif before is not None:
            refused = cuts.get(node.id) or _refusal(before, node, graph.models[node.id])
            if refused is None:
                draft = before
                _join(before, node, graph.models[node.id])
            else:
                formation.borders.append(Border(node.inputs[0].name, node.name, refused))
        if draft is None:
            draft = _start(node, graph.models[node.id])
            formation.drafts.append(draft)
        region_of[node.id] = draft
        if node.id in graph.outputs and type(node.logic).__name__ != "Sink":
            formation.borders.append(Border(node.name, "", "the program ends here"))
    return formation


def _not_parallel(graph: Graph, node: Node) -> str | None:
    model = graph.models[node.id]
    if model.state.value is State.UNKNOWN:
        return f"its state is unknown: {model.state.reason}"
    if graph.fan_in(node) > 1 and not graph.fans:
        return f"it has {graph.fan_in(node)} inputs: a region has one entry"
    if graph.fan_out(node) > 1 and not graph.fans:
        return f"its output goes {graph.fan_out(node)} ways: a region has one exit"
    if model.state.value is State.PARTITIONED and model.key is None:
        return "its state is partitioned, but by no key"
    return None


def _start(node: Node, model: Model) -> Draft:
    schema = node.schema if isinstance(node.logic, Source) or not node.inputs else node.inputs[0].schema
    draft = Draft([], None, {name: name for name in schema.names}, {}, {})
    _join(draft, node, model)
    return draft


def _traced(draft: Draft, model: Model) -> frozenset[Atom]:
    """An operator's key in terms of the region's input; parts that were not forwarded are left out."""
    key = model.key
    if key is None:
        return frozenset()
    if key.expression or key.function is not None:
        same = all(draft.origins.get(name) == name for name in key.columns)
        known = bool(key.columns) or not draft.nodes
        text = key.expression or f"{getattr(key.function, '__qualname__', 'key')}(t)"
        return frozenset({Atom(text, key.columns, False)}) if same and known else frozenset()
    return frozenset(Atom(draft.origins[name], (draft.origins[name],)) for name in key.columns if name in draft.origins)


def _refusal(draft: Draft, node: Node, model: Model) -> str | None:
    if model.state.value is State.STATELESS:
        return None
    assert model.key is not None
    traced = _traced(draft, model)
    if not traced:
        lost = next((draft.lost[name] for name in model.key.columns if name in draft.lost), None)
        who = lost or draft.nodes[-1].name
        return f"its key {{{model.key.text}}} is not forwarded by {who}"
    if draft.key is not None and not draft.key & traced:
        return (
            f"the region's key would be empty: {{{_text(draft.key)}}} and {{{model.key.text}}} have nothing in common"
        )
    return None


def _join(draft: Draft, node: Node, model: Model) -> None:
    if model.state.value is State.PARTITIONED:
        traced = _traced(draft, model)
        draft.key = traced if draft.key is None else draft.key & traced
        for atom in traced:
            if not atom.is_column and model.key is not None:
                draft.keys.setdefault(atom.text, model.key)
    if not isinstance(node.logic, Source):
        copied = model.forwarding.value
        origins = {out: draft.origins[of] for out, of in copied.items() if of in draft.origins}
        for name in draft.origins:
            if name not in origins:
                draft.lost.setdefault(name, node.name)
        for name in node.schema.names:
            if name not in origins:
                draft.lost.setdefault(name, node.name)
        draft.origins = origins
    draft.nodes.append(node)


def _text(key: frozenset[Atom] | None) -> str:
    return ", ".join(sorted(atom.text for atom in key or ()))


# -- operators that must stay together ----------------------------------------------------------------------


def _regions(formation: Formation) -> dict[int, int]:
    return {node.id: place for place, draft in enumerate(formation.drafts) for node in draft.nodes}


def _settle_fusion(graph: Graph, formation: Formation, cuts: dict[int, str], banned: dict[int, str]) -> bool:
    """Operators with one `colocate` mark are in one region or in none. False if a new round is needed."""
    groups: dict[str, list[Node]] = {}
    for node in graph.order:
        if node.colocate:
            groups.setdefault(node.colocate, []).append(node)
    where = _regions(formation)
    for mark, nodes in groups.items():
        if len(nodes) < 2 or len({where.get(node.id) for node in nodes}) == 1:
            continue
        first = nodes[0]
        others = ", ".join(node.name for node in nodes[1:])
        if first.id not in cuts and first.id in where and formation.drafts[where[first.id]].nodes[0] is not first:
            cuts[first.id] = f"it must share a process with {others} (colocate {mark!r})"
            return False
        for node in nodes:
            rest = ", ".join(each.name for each in nodes if each is not node)
            blocked = _what_parts(graph, formation, nodes)
            banned.setdefault(node.id, f"it must share a process with {rest} (colocate {mark!r}), but {blocked}")
        for node in graph.between(nodes):
            banned.setdefault(node.id, f"it stands between operators that share a process (colocate {mark!r})")
        return False
    return True


def _what_parts(graph: Graph, formation: Formation, nodes: list[Node]) -> str:
    for node in [*graph.between(nodes), *nodes]:
        if node.id in formation.outside:
            return f"{node.name} is in the way: {formation.outside[node.id]}"
    borders = [
        border
        for border in formation.borders
        if border.before in {n.name for n in graph.between(nodes)} | {n.name for n in nodes}
    ]
    return f"no region can hold both: {borders[0].reason}" if borders else "no region can hold both"


# -- punctuations -------------------------------------------------------------------------------------------


def check_punctuations(graph: Graph) -> dict[int, list[Node]]:
    """Which operators depend on the punctuations of which; errors where an expecting port has not one stream.

    A stream is punctuated if its port generates punctuations, or preserves those of a single punctuated
    input; two punctuated streams that meet are one stream without punctuations.
    """
    maker: dict[int, Node | None] = {}
    lost_at: dict[int, Node] = {}
    dependents: dict[int, list[Node]] = {}
    for node in graph.order:
        model = graph.models[node.id]
        punctuated = [source for source in node.inputs if maker.get(source.id) is not None]
        ports = model.inputs.value
        for place, port in enumerate(ports):
            if port is not Input.EXPECTING:
                continue
            streams = list(node.inputs) if len(ports) == 1 else [node.inputs[place]]
            having = [source for source in streams if maker.get(source.id) is not None]
            if len(having) > 1:
                names = " and ".join(source.title for source in having)
                raise ProgramError(
                    f"{node.title}: expects one punctuated stream, found {len(having)}: {names}; "
                    "remove the punctuations of all but one"
                )
            if not having:
                lost = next((lost_at[source.id] for source in streams if source.id in lost_at), None)
                why = f": they are lost at {lost.title}, where punctuated streams meet" if lost is not None else ""
                raise ProgramError(
                    f"{node.title}: expects a punctuated stream, but its input has no punctuations{why}; "
                    "put punctuate(…) before it"
                )
            made_by = maker[having[0].id]
            assert made_by is not None
            dependents.setdefault(made_by.id, []).append(node)
        if model.output.value is Output.GENERATES:
            maker[node.id] = node
        elif model.output.value is Output.PRESERVES and len(punctuated) == 1:
            maker[node.id] = maker[punctuated[0].id]
        else:
            maker[node.id] = None
            if len(punctuated) > 1:
                lost_at[node.id] = node
            for source in node.inputs:
                if source.id in lost_at and model.output.value is Output.PRESERVES:
                    lost_at[node.id] = lost_at[source.id]
    return dependents


def _settle_punctuation(
    graph: Graph,
    formation: Formation,
    dependents: dict[int, list[Node]],
    cuts: dict[int, str],
    banned: dict[int, str],
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
            banned.setdefault(node.id, f"{reason}, but {why}")
        return False
    return True


def _border_reason(formation: Formation, node: Node) -> str:
    found = [border.reason for border in formation.borders if border.before == node.name]
    return found[0] if found else "it is in another region"


def selectivity_of(draft: Draft, models: Mapping[int, Model]) -> Selectivity:
    found = Selectivity.ONE
    for node in draft.nodes:
        if not isinstance(node.logic, Source):
            found = found.then(models[node.id].selectivity.value)
    return found


def is_stateless(draft: Draft, models: Mapping[int, Model]) -> bool:
    return all(models[node.id].state.value is State.STATELESS for node in draft.nodes)
