"""The plan of *Safe*: regions with joints, routing and ordering strategies, and processing elements.

What a program looks like by the rules of the paper alone; the paper's own machine (`papers.machine`) runs it. Anabranch
runs a layout (`compiler.layout.stages`), which knows neither joints nor processing elements.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence

from anabranch.compiler.compile import in_order, models_of
from anabranch.compiler.layout.chains import Border, Draft, Formation, Graph
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.merging.strategies import ordering_strategy
from anabranch.papers.safe_regions import Ban, Rules, form_regions
from anabranch.program.graph import Node, Source
from anabranch.program.model import Key, Model, Property, Selectivity, State


class Joint(enum.Enum):
    """The entry or exit of a region."""

    PARALLEL_SOURCE = "parallel source"
    SPLIT = "split"
    SHUFFLE = "shuffle"
    MERGE = "merge"
    PARALLEL_SINK = "parallel sink"


class Routing(enum.Enum):
    """How a splitter chooses the channel of a tuple."""

    ROUND_ROBIN = "round-robin"
    HASH = "hash of the key"


@dataclasses.dataclass(frozen=True)
class SafeOperator:
    """An operator with its region, None if it is sequential, and what then keeps it out of every region."""

    node: Node
    model: Model
    region: int | None
    blocked: str = ""
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.node.name


@dataclasses.dataclass(frozen=True)
class SafeRegion:
    """Operators that are replicated together.

    Attributes
    ----------
    number : int
    operators : tuple of str
        Names, in the order tuples pass them.
    key : tuple of str
        The columns of the region's input that tuples are routed by; empty if any channel will do.
    first, last : Joint
    routing : Routing
    ordering : Strategy or None
        How the merger (or the next region's, after a shuffle) restores the order; None if nobody needs it.
    selectivity : Selectivity
        Of the region alone; `flow_selectivity` of it and the regions shuffled into it.
    """

    number: int
    operators: tuple[str, ...]
    key: tuple[str, ...]
    key_text: str
    first: Joint
    last: Joint
    routing: Routing
    ordering: Strategy | None
    selectivity: Selectivity
    flow_selectivity: Selectivity
    stateless: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class ProcessingElement:
    """Operators that run fused, in one process: all in one region, or all sequential."""

    number: int
    operators: tuple[str, ...]
    region: int | None


@dataclasses.dataclass(frozen=True)
class SafePlan:
    """A program by the rules of the paper."""

    operators: tuple[SafeOperator, ...]
    regions: tuple[SafeRegion, ...]
    processes: tuple[ProcessingElement, ...]
    borders: tuple[Border, ...]

    def operator(self, name: str) -> SafeOperator:
        return next(each for each in self.operators if each.name == name)

    def region_of(self, name: str) -> SafeRegion | None:
        found = self.operator(name).region
        return None if found is None else self.regions[found]


def safe_plan(outputs: Sequence[Node], rules: Rules | None = None) -> SafePlan:
    """What the paper's compiler makes of a program."""
    rules = rules or Rules()
    order = in_order(list(outputs))
    models = models_of(order)
    for node in order:
        if node.name in rules.partitioned:
            models[node.id] = _partitioned(models[node.id], rules.partitioned[node.name], node)
    graph = Graph(order, outputs, models)
    formation, banned = form_regions(graph, rules)
    regions = _regions(formation, models, rules)
    region_of = {node.id: place for place, draft in enumerate(formation.drafts) for node in draft.nodes}
    operators = tuple(
        SafeOperator(
            node,
            models[node.id],
            region_of.get(node.id),
            formation.outside.get(node.id, ""),
            _remedy(graph, node, banned.get(node.id)) if node.id in formation.outside else "",
        )
        for node in order
    )
    return SafePlan(operators, regions, _processes(graph, region_of), tuple(formation.borders))


def _partitioned(model: Model, columns: tuple[str, ...], node: Node) -> Model:
    state = Property(State.PARTITIONED, "the source is partitioned", node.location)
    return dataclasses.replace(
        model, state=state, key=Key(columns), selectivity=dataclasses.replace(model.selectivity, value=Selectivity.ONE)
    )


def _is_stateless(draft: Draft, models: Mapping[int, Model]) -> bool:
    return all(models[node.id].state.value is State.STATELESS for node in draft.nodes)


def _selectivity(draft: Draft, models: Mapping[int, Model]) -> Selectivity:
    found = Selectivity.ONE
    for node in draft.nodes:
        if not isinstance(node.logic, Source):
            found = found.then(models[node.id].selectivity.value)
    return found


def may_shuffle(selectivity_so_far: Selectivity, emission_index: bool) -> bool:
    """No shuffle after a prolific region: equal sequence numbers from one channel would lose their order.

    Packets that carry the place of a tuple among those with its number lift that ban.
    """
    return emission_index or selectivity_so_far is not Selectivity.ANY


def _regions(formation: Formation, models: dict[int, Model], rules: Rules) -> tuple[SafeRegion, ...]:
    last_of = {draft.nodes[-1].id: place for place, draft in enumerate(formation.drafts)}
    flows: list[Selectivity] = []
    firsts: list[Joint] = []
    lasts: list[Joint] = [Joint.MERGE] * len(formation.drafts)
    for place, draft in enumerate(formation.drafts):
        own = _selectivity(draft, models)
        head = draft.nodes[0]
        before = [last_of[source.id] for source in head.inputs if source.id in last_of]
        if isinstance(head.logic, Source):
            firsts.append(Joint.PARALLEL_SOURCE)
            flows.append(own)
        elif before and all(may_shuffle(flows[each], rules.emission_index) for each in before):
            firsts.append(Joint.SHUFFLE)
            flow = own
            for each in before:
                lasts[each] = Joint.SHUFFLE
                flow = flows[each].then(flow)
            flows.append(flow)
        else:
            firsts.append(Joint.SPLIT)
            flows.append(own)
        if draft.nodes[-1].name in rules.parallel_sinks:
            lasts[place] = Joint.PARALLEL_SINK
    found = []
    for place, draft in enumerate(formation.drafts):
        stateless = _is_stateless(draft, models)
        numbered = firsts[place] is not Joint.SPLIT or lasts[place] is Joint.SHUFFLE
        needed = lasts[place] is not Joint.PARALLEL_SINK
        key, text = draft.key_columns()
        found.append(
            SafeRegion(
                number=place,
                operators=tuple(node.name for node in draft.nodes),
                key=key,
                key_text=text,
                first=firsts[place],
                last=lasts[place],
                routing=Routing.ROUND_ROBIN if stateless else Routing.HASH,
                ordering=ordering_strategy(stateless, flows[place], numbered) if needed else None,
                selectivity=_selectivity(draft, models),
                flow_selectivity=flows[place],
                stateless=stateless,
                reason=_why(draft, firsts[place], formation),
            )
        )
    return tuple(found)


def _why(draft: Draft, first: Joint, formation: Formation) -> str:
    """Why the region starts where it starts."""
    head = draft.nodes[0]
    if first is Joint.PARALLEL_SOURCE:
        return "the source itself is partitioned"
    for border in formation.borders:
        if border.before == head.name:
            merged = "" if first is Joint.SHUFFLE else "; merged and split again: no shuffle after a prolific region"
            return border.reason + merged
    source = head.inputs[0] if head.inputs else None
    if source is None:
        return "it starts here"
    if len(head.inputs) > 1:
        return f"{head.name} brings {len(head.inputs)} streams together"
    return f"{source.name} is not in a region: {formation.outside.get(source.id, '')}"


def _processes(graph: Graph, region_of: dict[int, int]) -> tuple[ProcessingElement, ...]:
    """One process per region, and sequential operators fused with their neighbours.

    Two sequential operators are not fused across a region: the process would wait for itself. Each crossing
    of a region's border is a step further from the sources; only neighbours at one step are fused.
    """
    step: dict[int, int] = {}
    for node in graph.order:
        step[node.id] = max(
            (step[source.id] + (region_of.get(source.id) != region_of.get(node.id)) for source in node.inputs),
            default=0,
        )
    parent: dict[int, int] = {node.id: node.id for node in graph.order}

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    for node in graph.order:
        for source in node.inputs:
            same = region_of.get(source.id) == region_of.get(node.id)
            if same and (node.id in region_of or step[source.id] == step[node.id]):
                parent[root(node.id)] = root(source.id)
    numbers: dict[int, int] = {}
    members: dict[int, list[Node]] = {}
    for node in graph.order:
        number = numbers.setdefault(root(node.id), len(numbers))
        members.setdefault(number, []).append(node)
    return tuple(
        ProcessingElement(number, tuple(node.name for node in nodes), region_of.get(nodes[0].id))
        for number, nodes in members.items()
    )


def _remedy(graph: Graph, node: Node, ban: Ban | None) -> str:
    """What to do so that an operator that is in no region can be in one."""
    if graph.models[node.id].state.value is State.UNKNOWN:
        return graph.models[node.id].remedy
    if graph.fan_in(node) > 1:
        return "process each input by itself and unite the results, or declare the order irrelevant"
    if graph.fan_out(node) > 1:
        others = ", ".join(each.name for each in graph.consumers[node.id])
        return f"let only one operator read it: put what {others} need from it into one, or repeat it for each"
    return ban.remedy if ban is not None else ""
