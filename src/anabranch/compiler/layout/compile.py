"""The compiler's front door: a program in, a frozen plan out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from anabranch.compiler.layout.plan import Options, Plan, PlannedOperator, Process, Region
from anabranch.compiler.layout.regions import Draft, Formation, Graph, form_regions, is_stateless, selectivity_of
from anabranch.compiler.layout.strategies import Joint, Order, Routing, may_shuffle, ordering_strategy
from anabranch.compiler.models.analysis import analyse_with_facts
from anabranch.compiler.models.findings import Inference
from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, Loop, Node, Sink, Source
from anabranch.program.model import Block, Cause, Model, Ordering, Property, Selectivity, State


def compile_program(outputs: Sequence[Node], options: Options | None = None) -> Plan:
    """Find what is safe to run in parallel.

    Parameters
    ----------
    outputs : list of Node
        The operators whose streams leave the program.
    options : Options, optional

    Returns
    -------
    Plan

    Raises
    ------
    ProgramError
        If the program cannot mean anything: a key that does not exist, a declaration that the code
        contradicts, a cycle without a feedback edge, punctuations that do not come.
    """
    options = options or Options()
    order = in_order(list(outputs))
    models = _models(order)
    graph = Graph(order, list(outputs), models, options.fans)
    formation = form_regions(graph)
    regions = _regions(graph, formation, models, options)
    region_of = {node.id: place for place, draft in enumerate(formation.drafts) for node in draft.nodes}
    processes, process_of = _processes(graph, region_of)
    operators = tuple(
        PlannedOperator(
            node=node,
            model=models[node.id],
            logic=models[node.id].logic if models[node.id].logic is not None else node.logic,
            region=region_of.get(node.id),
            process=process_of[node.id],
            blocked=formation.outside.get(node.id, ""),
            remedy=_remedy(graph, node, models[node.id], formation.outside.get(node.id, "")),
        )
        for node in order
    )
    return Plan(operators, regions, processes, tuple(formation.borders), tuple(n.name for n in outputs), options)


def in_order(outputs: list[Node]) -> list[Node]:
    """Every operator of the program, sources first; an error if it goes in a circle."""
    done: dict[int, Node] = {}
    names: dict[str, Node] = {}
    ends = list(outputs)
    for output in ends:
        path: list[Node] = []
        on_path: set[int] = set()
        stack: list[tuple[Node, int]] = [(output, 0)]
        while stack:
            node, place = stack.pop()
            if place == 0:
                if node.id in done:
                    continue
                path.append(node)
                on_path.add(id(node))
            if place < len(node.inputs):
                stack.append((node, place + 1))
                source = node.inputs[place]
                if id(source) in on_path:
                    circle = [*path[next(i for i, each in enumerate(path) if each is source) :], source]
                    raise ProgramError(
                        f"{source.title}: the program goes in a circle: "
                        f"{' ← '.join(each.name for each in circle)}; "
                        "a stream can only go back through a feedback edge"
                    )
                if source.id not in done:
                    stack.append((source, 0))
                continue
            path.pop()
            on_path.discard(id(node))
            done[node.id] = node
            if isinstance(node.logic, Feedback) and isinstance(node.logic.target, Loop):
                assert node.logic.target.node is not None, "named() refuses a loop that is open"
                ends.append(node.logic.target.node)
            other = names.setdefault(node.name, node)
            if other is not node:
                raise ProgramError(f"{node.title}: another operator has that name: {other.title}; name one of them")
    # Left to right is the order of declaration, wherever that respects the edges; depth-first does not.
    return sorted(done.values(), key=lambda node: node.id) if _is_sorted(done) else list(done.values())


def _is_sorted(nodes: dict[int, Node]) -> bool:
    return all(source.id < node.id for node in nodes.values() for source in node.inputs)


# -- models -----------------------------------------------------------------------------------------------


def _models(order: list[Node]) -> dict[int, Model]:
    models: dict[int, Model] = {}
    facts: dict[int, Inference] = {}
    for node in order:
        models[node.id], found = analyse_with_facts(node)
        if found is not None:
            facts[node.id] = found
    _separate(order, models, facts)
    return models


def _separate(order: list[Node], models: dict[int, Model], facts: dict[int, Inference]) -> None:
    """Operators that share something one of them changes cannot run apart from each other."""
    writers: dict[Any, Node] = {}
    users: dict[Any, list[Node]] = {}
    paths: dict[Any, str] = {}
    for node in order:
        if node.id not in facts:
            continue
        found = facts[node.id].facts
        for identity, path in found.written.items():
            writers.setdefault(identity, node)
            paths[identity] = path
        for place in found.globals_written:
            writers.setdefault(place, node)
            paths[place] = place[1]
        for thing in {*found.touched, *found.written, *found.globals_read, *found.globals_written}:
            users.setdefault(thing, []).append(node)
    for thing, writer in writers.items():
        for node in users[thing] if len(users[thing]) > 1 else ():
            model = models[node.id]
            if model.state.cause is not Cause.DECLARED:
                other = writer if node is not writer else next(each for each in users[thing] if each is not node)
                reason = f"shares {paths[thing]} with {other.title}, and {writer.name} changes it"
                models[node.id] = _blocked(model, reason, node)


def _blocked(model: Model, reason: str, node: Node) -> Model:
    state = Block(State.UNKNOWN, reason, node.location, shared=True)
    return dataclasses.replace(
        model,
        state=state,
        key=None,
        case=0,
        logic=None,
        blocks=(state, *model.blocks),
        remedy="give each operator an object of its own",
        ordering=Property(Ordering.NEEDED, "tuples must come in the order of one thread", node.location),
    )


# -- joints and strategies --------------------------------------------------------------------------------


def _regions(graph: Graph, formation: Formation, models: dict[int, Model], options: Options) -> tuple[Region, ...]:
    last_of = {draft.nodes[-1].id: place for place, draft in enumerate(formation.drafts)}
    flows: list[Selectivity] = []
    firsts: list[Joint] = []
    lasts: list[Joint] = [Joint.MERGE] * len(formation.drafts)
    for place, draft in enumerate(formation.drafts):
        own = selectivity_of(draft, models)
        head = draft.nodes[0]
        before = [last_of[source.id] for source in head.inputs if source.id in last_of]
        if isinstance(head.logic, Source):
            firsts.append(Joint.PARALLEL_SOURCE)
            flows.append(own)
        elif before and all(may_shuffle(flows[each], options.emission_index) for each in before):
            firsts.append(Joint.SHUFFLE)
            flow = own
            for each in before:
                lasts[each] = Joint.SHUFFLE
                flow = flows[each].then(flow)
            flows.append(flow)
        else:
            firsts.append(Joint.SPLIT)
            flows.append(own)
        if isinstance(draft.nodes[-1].logic, Sink):
            lasts[place] = Joint.PARALLEL_SINK
    found = []
    for place, draft in enumerate(formation.drafts):
        stateless = is_stateless(draft, models)
        numbered = firsts[place] is not Joint.SPLIT or lasts[place] is Joint.SHUFFLE
        ordering = ordering_strategy(stateless, flows[place], numbered)
        if lasts[place] is Joint.PARALLEL_SINK:
            ordering = Order.NONE
        key, text, function = _key_of(draft)
        found.append(
            Region(
                number=place,
                operators=tuple(node.name for node in draft.nodes),
                key=key,
                key_text=text,
                key_function=function,
                first=firsts[place],
                last=lasts[place],
                routing=Routing.ROUND_ROBIN if stateless else Routing.HASH,
                ordering=ordering,
                selectivity=selectivity_of(draft, models),
                flow_selectivity=flows[place],
                stateless=stateless,
                reason=_why(graph, draft, firsts[place], formation, options, flows),
            )
        )
    return tuple(found)


def _key_of(draft: Draft) -> tuple[tuple[str, ...], str, Any]:
    if draft.key is None:
        return (), "", None
    columns = sorted(atom.text for atom in draft.key if atom.is_column)
    if columns:
        return tuple(columns), ", ".join(columns), None
    atom = min(draft.key, key=lambda each: each.text)
    return (), atom.text, draft.keys[atom.text].function


def _why(
    graph: Graph, draft: Draft, first: Joint, formation: Formation, options: Options, flows: list[Selectivity]
) -> str:
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


# -- fusion -----------------------------------------------------------------------------------------------


def _processes(graph: Graph, region_of: dict[int, int]) -> tuple[tuple[Process, ...], dict[int, int]]:
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
    processes = tuple(
        Process(number, tuple(node.name for node in nodes), region_of.get(nodes[0].id))
        for number, nodes in members.items()
    )
    return processes, {node.id: numbers[root(node.id)] for node in graph.order}


def _remedy(graph: Graph, node: Node, model: Model, blocked: str) -> str:
    if not blocked:
        return ""
    if model.state.value is State.UNKNOWN:
        return model.remedy
    if graph.fan_in(node) > 1:
        return "process each input by itself and unite the results, or declare the order irrelevant"
    if graph.fan_out(node) > 1:
        others = ", ".join(each.name for each in graph.consumers[node.id])
        return f"let only one operator read it: put what {others} need from it into one, or repeat it for each"
    if "colocate" in blocked:
        return "remove the colocate mark"
    if "punctuations" in blocked:
        return "partition what expects the punctuations by a key that all of them share"
    return ""
