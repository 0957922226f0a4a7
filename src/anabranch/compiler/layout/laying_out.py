"""From a plan to its layout: every operator is placed, left to right; then trails and depths follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from anabranch.compiler.layout import partitioned_source, pragmas
from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.layout.partitioned_source import Names
from anabranch.compiler.layout.runnable import is_single, runnable
from anabranch.compiler.layout.stages import Digits, Edge, Exit, Layout, Stage, Step
from anabranch.program.event_time import awaiting_watermarks, watermarks_behind
from anabranch.program.graph import (
    Feedback,
    Keyed,
    Node,
    Port,
    Punctuate,
    Source,
    Spread,
    Union,
    Watermark,
    fed_back,
)
from anabranch.program.model import Ordering, Selectivity, State
from anabranch.program.punctuated_streams import carrying_punctuations

if TYPE_CHECKING:
    from anabranch.compiler.layout.plan_data import PlanData


_ISOLATED = "isolate() gives it a stage of its own"


def lay_out(plan: PlanData) -> Layout:
    """The steps and stages of a plan, every edge with trails: `order_needs` takes them off where nobody needs them."""
    layout = _laid_out(plan, {})
    broken = pragmas.parted(plan, layout)
    if broken:
        layout = _laid_out(plan, pragmas.held(plan, broken))
        pragmas.check(plan, layout)
    return layout


def _laid_out(plan: PlanData, held: Mapping[int, PlannedOperator]) -> Layout:
    draft = _Draft(plan, held)
    for operator in plan.operators:
        draft.place(operator)
    return draft.finished()


@dataclasses.dataclass
class _Branch:
    """One of the places where a stream is made: a step, the forks passed since, and whether punctuations come along.

    `names` is what the columns are called here that its source is partitioned by.
    """

    step: int
    fork: tuple[int, ...]
    punctuated: bool
    names: Names = ()


class _Draft:
    def __init__(self, plan: PlanData, held: Mapping[int, PlannedOperator]) -> None:
        self._plan = plan
        self._held = held
        self._isolated = pragmas.isolated(plan)
        self._alone: set[int] = set()  # stages that nobody else may join
        self._steps: list[Step] = []
        self._edges: list[Edge] = []
        self._kinds: list[str] = []
        self._chains: list[int | None] = []
        self._reasons: list[str] = []
        self._routes: list[dict[str, tuple[str, ...]]] = []
        self._copies: dict[int, Node] = {}
        self._branches: dict[int, list[_Branch]] = {}
        nodes = [operator.node for operator in plan.operators]
        self._names = {node.name: node for node in nodes}
        self._borders = {border.before: border.reason for border in plan.borders}
        self._punctuated = carrying_punctuations(nodes)
        self._behind = watermarks_behind(nodes)
        self._awaiting = awaiting_watermarks(nodes)
        self._loops = fed_back(nodes)
        self._readers: dict[int, list[tuple[int, int]]] = {node.id: [] for node in nodes}
        for node in nodes:
            for place, source in enumerate(node.inputs):
                self._readers[source.id].append((node.id, place))
        self._prolific = {o.node.id: o.model.selectivity.value is Selectivity.ANY for o in plan.operators}
        self._ordering: dict[int, Ordering] = {
            o.node.id: Ordering.TOLERANT if isinstance(o.node.logic, Port) else o.model.ordering.value
            for o in plan.operators
        }
        self._chain_of = {o.node.id: o.chain for o in plan.operators}
        self._node_of: list[Node] = []  # per step, as the user wrote it
        self._forwarding = {o.node.id: o.model.forwarding.value for o in plan.operators}
        self._partitioned: dict[int, tuple[Node, tuple[int, ...]]] = {}  # stage → its source, columns in the route
        self._key_names = _key_names(plan)

    def place(self, operator: PlannedOperator) -> None:
        node = operator.node
        copy = runnable(operator, self._copies)
        self._copies[node.id] = copy
        if isinstance(node.logic, (Source, Feedback)):
            branch = self._branch(node, self._step(node, copy, self._stage("source", node), []))
            self._branches[node.id] = [dataclasses.replace(branch, names=partitioned_source.declared(node))]
            return
        arriving = [self._arriving(node, place) for place in range(len(node.inputs))]
        if isinstance(node.logic, Union):
            # It is no step: what it removes must not pass by.
            carries = node.id in self._punctuated
            self._branches[node.id] = [
                dataclasses.replace(branch, punctuated=branch.punctuated and carries)
                for branches in arriving
                for branch in branches
            ]
            return
        if isinstance(node.logic, Spread):
            into = [(0, branch) for branch in arriving[0]]
            stage = self._stage("spread", node, reason="tuples are dealt out here")
            self._branches[node.id] = [self._branch(node, self._step(node, copy, stage, into))]
            return
        if operator.model.state.value is State.STATELESS and not is_single(operator):
            self._branches[node.id] = list(self._stateless(node, copy, arriving[0]))
            return
        into = [(place, branch) for place, branches in enumerate(arriving) for branch in branches]
        route = () if is_single(operator) else self._key_names[node.id]
        parted = self._parted(operator, copy, into, single=not route)
        if parted:
            spared, places = self._spared(node, copy, into, route)
            stage = self._stage("keyed" if route else "single", node, operator.chain, parted + spared)
            if places:
                self._partitioned[stage] = self._source_of(self._steps[into[0][1].step].stage), places
        else:
            stage = self._steps[into[0][1].step].stage
        if stage in self._partitioned:
            route = tuple(route[at] for at in self._partitioned[stage][1])
        if isinstance(copy.logic, Keyed) or not route:
            self._routes[stage][node.name] = route
        self._branches[node.id] = [self._branch(node, self._step(node, copy, stage, into))]

    def _spared(
        self, node: Node, copy: Node, into: list[tuple[int, _Branch]], route: tuple[str, ...]
    ) -> tuple[str, tuple[int, ...]]:
        """If a source is partitioned by key: which of the route's columns it is, or why that spares nothing."""
        named = [branch for _, branch in into if branch.names]
        if not named:
            return "", ()
        stage = self._steps[named[0].step].stage
        source = self._source_of(stage)
        punctuated = any(branch.punctuated for _, branch in into) and node.id in self._punctuated
        isolated = node.id in self._isolated or stage in self._alone
        places: tuple[int, ...] = ()
        timed = self._awaits(node) and any(self._behind[self._node_of[branch.step].id] for _, branch in into)
        why = partitioned_source.obstacle(copy, len(into), punctuated, timed, isolated)
        if not why:
            places, why = partitioned_source.matched(source, node, named[0].names, route)
        by = ", ".join(source.logic.partitioned_by)  # type: ignore[union-attr]
        return (f"; the source is partitioned by {by}, which spares nothing: {why}", ()) if why else ("", places)

    def _source_of(self, stage: int) -> Node:
        """What a stage of a source reads."""
        return next(node for step, node in zip(self._steps, self._node_of, strict=True) if step.stage == stage)

    def _stateless(self, node: Node, copy: Node, arriving: list[_Branch]) -> Iterator[_Branch]:
        """The steps of what has no state: where its input is made, unless somebody wants it elsewhere."""
        moved = [branch for branch in arriving if self._moves(node, self._steps[branch.step].stage)]
        for branch in arriving:
            if branch not in moved:
                made = self._branch(node, self._step(node, copy, self._steps[branch.step].stage, [(0, branch)]))
                names = partitioned_source.forwarded(branch.names, self._forwarding[node.id])
                yield dataclasses.replace(made, names=names)
        if not moved:
            return
        target = self._held.get(node.id)
        if target is not None:
            kind = "single" if is_single(target) else "keyed"
            stage = self._stage(kind, node, target.chain, f"colocate() puts it into the stage of {target.name}")
        elif node.id in self._isolated:
            stage = self._stage("spread", node, reason=_ISOLATED)
        else:
            before = self._steps[moved[0].step].node.name
            stage = self._stage("spread", node, reason=f"{before} has a stage of its own: isolate()")
        yield self._branch(node, self._step(node, copy, stage, [(0, branch) for branch in moved]))

    def _moves(self, node: Node, stage: int) -> bool:
        """Whether what has no state must leave the stage in which its input is made."""
        if isinstance(node.logic, Port):
            return False  # it is a part of the operator whose output it is
        return node.id in self._held or node.id in self._isolated or stage in self._alone

    def _branch(self, node: Node, step: int) -> _Branch:
        return _Branch(step, (), node.id in self._punctuated)

    def _arriving(self, node: Node, place: int) -> list[_Branch]:
        """Where an input of an operator comes from, with the fork it passed right before."""
        source = node.inputs[place]
        readers = self._readers[source.id]
        forks = len(readers) + len(self._loops.get(source.name, ())) > 1
        fork = (readers.index((node.id, place)),) if forks else ()
        return [dataclasses.replace(branch, fork=branch.fork + fork) for branch in self._branches[source.id]]

    def _parted(self, operator: PlannedOperator, copy: Node, into: list[tuple[int, _Branch]], single: bool) -> str:
        """Why an operator with state cannot run in the stage of what it reads; empty if it can."""
        if isinstance(copy.logic, Keyed) and (copy.logic.punctuated or copy.logic.ticked or copy.logic.timed):
            return "it waits for punctuations or for time: a stage is entered where it does"
        if len(operator.node.inputs) > 1 and not single:
            return f"it brings {len(operator.node.inputs)} streams together"
        before = self._steps[into[0][1].step]
        kind = self._kinds[before.stage]
        if operator.node.id in self._isolated:
            return _ISOLATED
        if before.stage in self._alone:
            return f"{before.node.name} has a stage of its own: isolate()"
        if single:
            if len(into) == 1 and not into[0][1].fork and kind == "single":
                return ""
            return f"it runs on one channel: {operator.blocked or _computed(operator)}"
        if len(into) > 1:
            return f"the union before it brings {len(into)} streams together"
        if kind != "keyed":
            return f"tuples of one key come together here: {operator.model.state.reason}"
        if not into[0][1].fork and self._chains[before.stage] == operator.chain is not None:
            return ""
        return self._borders.get(operator.name, f"{before.node.name} is not routed by its key")

    def _stage(self, kind: str, entry: Node, chain: int | None = None, reason: str = "") -> int:
        if entry.id in self._isolated:
            self._alone.add(len(self._kinds))
        self._kinds.append(kind)
        self._chains.append(chain)
        self._reasons.append(reason)
        self._routes.append({})
        return len(self._kinds) - 1

    def _step(self, node: Node, copy: Node, stage: int, into: list[tuple[int, _Branch]]) -> int:
        number = len(self._steps)
        edges = []
        for place, branch in into:
            edges.append(len(self._edges))
            carries = branch.punctuated and node.id in self._punctuated
            watermarks = self._behind[self._node_of[branch.step].id] if self._awaits(node) else ()
            self._edges.append(
                Edge(
                    len(self._edges),
                    branch.step,
                    number,
                    place,
                    branch.fork,
                    punctuated=carries,
                    watermarks=watermarks,
                )
            )
        self._steps.append(Step(number, copy, stage, tuple(edges), ordering=self._ordering[node.id]))
        self._node_of.append(node)
        return number

    def _awaits(self, node: Node) -> bool:
        """Whether somebody waits for the watermarks of what an operator reads."""
        return node.id in self._awaiting and not isinstance(node.logic, Watermark)

    # -- trails and depths ----------------------------------------------------------------------------------

    def finished(self) -> Layout:
        exits = self._exits()
        outputs: dict[int, list[int]] = {step.number: [] for step in self._steps}
        for edge in self._edges:
            outputs[edge.source].append(edge.number)
        # By operator: behind a union it may be in several places.
        ticking = list(dict.fromkeys(self._node_of[step.number].id for step in self._steps if self._ticks(step)))
        loose: dict[int, bool] = {}
        for step in list(self._steps):
            digits = self._entering(step)
            inner = len(step.inputs) == 1 and not self._edges[step.inputs[0]].crosses
            was_loose = loose.get(self._edges[step.inputs[0]].source, False) if inner else False
            prolific = self._prolific[self._node_of[step.number].id] and not isinstance(step.node.logic, Source)
            # What makes punctuations, or is called at them, numbers what it emits itself.
            numbers = step.waits or isinstance(step.node.logic, (Punctuate, Watermark))
            is_loose = not numbers and (was_loose or prolific)
            leaving = [self._edges[number] for number in outputs[step.number]]
            stays = len(leaving) == 1 and leaving[0].target >= 0 and not leaving[0].fork
            stays = stays and self._steps[leaving[0].target].stage == step.stage
            refines = is_loose and not stays
            loose[step.number] = is_loose and not refines
            self._steps[step.number] = dataclasses.replace(
                step,
                outputs=tuple(outputs[step.number]),
                digits=digits,
                refines=refines,
                tick=ticking.index(self._node_of[step.number].id) - len(ticking) if self._ticks(step) else None,
            )
            self._label(step.number, digits, refines, leaving)
        stages = tuple(self._stages())
        return Layout(tuple(self._steps), tuple(self._edges), stages, exits)

    def _ticks(self, step: Step) -> bool:
        return step.waits or step.makes_watermark

    def _entering(self, step: Step) -> Digits:
        """The digits of a step's input: of its only edge, or as many as the longest of several needs."""
        if not step.inputs:
            return (None,)
        found = [self._edges[number].digits for number in step.inputs]
        if len(found) == 1 and not step.waits:
            return found[0]
        return (None,) * max(len(digits) for digits in found)

    def _label(self, number: int, digits: Digits, refines: bool, leaving: list[Edge]) -> None:
        step = self._steps[number]
        if isinstance(step.node.logic, (Punctuate, Watermark)):
            digits = (*digits, None)
        if step.waits:
            digits = (*digits, *waiting_digits(digits), *((None,) if step.is_timed else ()))
        if refines:
            digits = (*digits, None)
        for edge in leaving:
            crosses = edge.target >= 0 and self._steps[edge.target].stage != step.stage
            target = self._steps[edge.target] if edge.target >= 0 else None
            self._edges[edge.number] = dataclasses.replace(
                edge,
                digits=(*digits, *edge.fork),
                crosses=crosses,
                key=self._edge_key(target, edge.place) if crosses and target is not None else (),
                keeps_keys=crosses and target is not None and self._keeps_keys(step, target),
                to_all=target is not None and target.node.is_broadcast(edge.place),
            )

    def _keeps_keys(self, source: Step, target: Step) -> bool:
        """Whether all tuples of one key of a stage come from one channel of the other: both are routed by the same."""
        chains = {self._chain_of[self._node_of[each.number].id] for each in (source, target)}
        kinds = {self._kinds[each.stage] for each in (source, target)}
        return kinds == {"keyed"} and chains == {self._chains[source.stage]} and self._chains[source.stage] is not None

    def _edge_key(self, target: Step, place: int) -> tuple[str, ...]:
        """The columns an edge is routed by: those of the route, by their names in this input."""
        node = target.node
        if node.is_broadcast(place):
            return ()
        held = self._held.get(self._node_of[target.number].id)
        if held is not None:
            return () if is_single(held) else self._key_names[self._node_of[target.number].id]
        route = self._routes[target.stage].get(node.name, ())
        return tuple(node.key_of(place)[node.key.index(name)] for name in route)

    def _exits(self) -> tuple[Exit, ...]:
        found: list[Exit] = []
        ends = [(self._names[name], "") for name in self._plan.outputs]
        ends += [(self._names[target], loop.name) for target, loops in self._loops.items() for loop in loops]
        for node, loop in ends:
            edges = []
            for branch in self._branches[node.id]:
                edges.append(len(self._edges))
                self._edges.append(Edge(len(self._edges), branch.step, -1, len(found), branch.fork))
            found.append(Exit(self._copies[node.id], tuple(edges), loop))
        return tuple(found)

    def _stages(self) -> Iterator[Stage]:
        depths: dict[int, int] = {}
        for number, kind in enumerate(self._kinds):
            steps = [step for step in self._steps if step.stage == number]
            sources = [self._steps[self._edges[e].source].stage for e in steps[0].inputs]
            local = number in self._partitioned
            depths[number] = (not local) + max((depths[each] for each in sources), default=-1)
            names = tuple(step.number for step in steps)
            routes, reason = self._routes[number], self._reasons[number]
            stage = Stage(number, depths[number], names, kind, steps[0].node.name, routes, reason)
            if local:
                logic = self._partitioned[number][0].logic
                assert isinstance(logic, Source)
                by, count = logic.partitioned_by, logic.partitions
                stage = dataclasses.replace(stage, partitioned_by=by, partitions=count, local=True)
            yield stage


def waiting_digits(digits: Digits) -> Digits:
    """What the trail of a tuple gets that was emitted at a punctuation: the epoch and the trail since which its key
    waited, and which of the tuples for this key it is. If its key waited for a time, that comes first.
    """
    return (None,) * (len(digits) + 2)


def _computed(operator: PlannedOperator) -> str:
    key = operator.model.key
    return f"its key {key.text} is computed from a tuple: there are no columns to route by" if key is not None else ""


def _key_names(plan: PlanData) -> dict[int, tuple[str, ...]]:
    """For operators with a key: which of its columns their chain is routed by, by the names they have there."""
    found: dict[int, tuple[str, ...]] = {}
    # What the columns of a chain's key are called where we are in it; a map may have copied one to several.
    names: dict[int, dict[str, list[str]]] = {}
    for operator in plan.operators:
        key = operator.model.key
        if operator.chain is None:
            own = () if key is None or key.expression else key.columns
            found[operator.node.id] = operator.node.key or own
            continue
        chain = plan.chains[operator.chain]
        here = names.setdefault(chain.number, {column: [column] for column in chain.key})
        known = all(here.get(column) for column in chain.key)
        asked = operator.node.key or ()
        found[operator.node.id] = (
            tuple(next((name for name in here[column] if name in asked), here[column][0]) for column in chain.key)
            if known
            else ()
        )
        forwarding = operator.model.forwarding.value
        kept: dict[str, list[str]] = {}
        for name, source in forwarding.items() if isinstance(forwarding, dict) else ():
            kept.setdefault(source, []).append(name)
        if not isinstance(operator.node.logic, Source):
            names[chain.number] = {
                column: [copy for name in copies for copy in kept.get(name, ())] for column, copies in here.items()
            }
    return found
