"""The compiler's front door: a program in, a frozen plan out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from anabranch.compiler.layout.analysis import analyse_with_facts
from anabranch.compiler.layout.chains import Chain, Graph, PlannedOperator, form_chains
from anabranch.compiler.layout.computed_keys import with_computed_keys
from anabranch.compiler.layout.error_policies import with_error_policies
from anabranch.compiler.layout.hot_key_split import with_split_aggregations
from anabranch.compiler.layout.laying_out import lay_out
from anabranch.compiler.layout.order_needs import with_needed_order
from anabranch.compiler.layout.punctuations import check_punctuations
from anabranch.compiler.layout.source_spread import spread_names, with_spread_sources
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.plan import Plan
from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, Loop, Node, Source, named, upstream
from anabranch.program.model import Block, Cause, Model, Ordering, Property, State


def compiled(outputs: Sequence[Node], split_hot_keys: bool = False, spread: Collection[str] = ()) -> Plan:
    """A program as queries run it.

    Parameters
    ----------
    outputs : list of Node
        The operators whose streams leave the program, as users named them.
    split_hot_keys : bool
        Aggregations are two steps where that is exact, so that several channels can work on one key.
    spread : collection of str
        Sources that are dealt out to channels before their operators run.
    """
    ends = named(outputs)
    if spread:
        ends = with_spread_sources(ends, spread, spread_names(ends))
    if split_hot_keys:
        ends = with_split_aggregations(ends)
    if not any(isinstance(node.logic, Source) for node in upstream(*ends)):
        raise ProgramError(f"{ends[0].title}: the program has no source: nothing would ever come through its feedback")
    return compile_program(ends)


def compile_program(outputs: Sequence[Node]) -> Plan:
    """Find what is safe to run in parallel, and lay the program out.

    Raises
    ------
    ProgramError
        If the program cannot mean anything: a key that does not exist, a declaration that the code
        contradicts, a cycle without a feedback edge, punctuations that do not come. A program that means something but
        cannot run has a plan that says why.
    """
    order = in_order(list(outputs))
    models = models_of(order)
    outputs, order, models = with_computed_keys(outputs, order, models)
    outputs, order, models = with_error_policies(outputs, order, models)
    check_punctuations(order, models)
    formation = form_chains(Graph(order, outputs, models))
    chains = tuple(
        Chain(number, tuple(node.name for node in draft.nodes), *draft.key_columns())
        for number, draft in enumerate(formation.drafts)
    )
    chain_of = {node.id: number for number, draft in enumerate(formation.drafts) for node in draft.nodes}
    operators = tuple(_planned(node, models[node.id], chain_of, formation.outside) for node in order)
    plan = Plan(operators, chains, tuple(formation.borders), tuple(node.name for node in outputs))
    try:
        return dataclasses.replace(plan, laid_out=with_needed_order(lay_out(plan)))
    except ProgramError as problem:
        return dataclasses.replace(plan, refused=str(problem))


def _planned(node: Node, model: Model, chain_of: dict[int, int], outside: dict[int, str]) -> PlannedOperator:
    logic = model.logic if model.logic is not None else node.logic
    blocked = outside.get(node.id, "")
    remedy = model.remedy if blocked and model.state.value is State.UNKNOWN else ""
    return PlannedOperator(node, model, logic, chain_of.get(node.id), blocked, remedy)


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


def models_of(order: list[Node]) -> dict[int, Model]:
    """What is believed of each operator, and of all together."""
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
        for identity, path in facts[node.id].dicts.items():  # what is kept for each key
            writers.setdefault(identity, node)
            paths.setdefault(identity, path)
        things = {*found.touched, *found.written, *found.globals_read, *found.globals_written, *facts[node.id].dicts}
        for thing in things:
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
        remedy="give each operator an object of its own, or let them share declared state: ab.share(…)",
        ordering=Property(Ordering.NEEDED, "tuples must come in the order of one thread", node.location),
    )
