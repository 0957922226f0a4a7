"""Laying a planned program out for Spark: steps, edges between them, stages, depths.

    depth 0            depth 1                      depth 2
    source ─ map ─┐ shuffle ┌─ process (key k) ─┐ shuffle ┌─ join (key l) ─► output
    source ───────┘         └─ process (key m) ─┘         └─ one channel ──► output

A **step** is an operator as it runs. What has no state runs where its input is made: if that is in several
places, behind a union say, there is a step in each of them, and a union itself is no step at all. What has
state runs in one stage: the tuples it needs are brought there. A **stage** is what one kind of task does: steps
that feed each other, the first of which (the *entry*) gets its tuples from other stages. Stages of one **depth**,
the number of shuffles before them, run side by side.

**Trails.** Depth-first order is kept by numbers. A tuple's trail is a list of numbers that sorts as one thread
would have met the tuples: the place of its source tuple, then for everything that made several tuples of one
which of them it is, and for every fork which of the edges it took. The numbers are in *digits*; which edge was
taken is the same for all tuples of an edge, so that digit holds a constant of the plan and is never sent. Two
trails that agree up to a digit mean the same by it: wherever two streams part, a digit tells them apart. Edges that
lead to nobody who minds carry none (`order_needs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from anabranch.program.graph import (
    Keyed,
    Node,
    Watermark,
)
from anabranch.program.model import Ordering

# Per digit: the constant it holds, or None if it is sent with each tuple.
Digits = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Edge:
    """The way of tuples from one step to the next, or out of the program.

    Attributes
    ----------
    number : int
    source, target : int
        Steps; the target is -1 for an edge that leaves the program.
    place : int
        Which input of the target's operator it is; for an edge that leaves, which exit.
    fork : tuple of int
        What the trail gets for taking this edge.
    digits : Digits
        The trails of its tuples.
    key : tuple of str
        The columns that tuples are routed by, if it goes to a stage with a key.
    crosses : bool
        Whether it goes to another stage.
    ordered : bool
        Whether trails are sent at all: where order does not matter, they need not be.
    punctuated : bool
        Whether punctuations travel on it.
    watermarks : tuple of str
        The watermarks whose advances travel on it.
    keeps_keys : bool
        Whether the tuples of one key of the stage it enters all come from one channel of the stage it leaves.
    to_all : bool
        Whether every channel of the stage it enters gets all its tuples.
    """

    number: int
    source: int
    target: int
    place: int
    fork: tuple[int, ...]
    digits: Digits = ()
    key: tuple[str, ...] = ()
    crosses: bool = False
    ordered: bool = True
    punctuated: bool = False
    watermarks: tuple[str, ...] = ()
    keeps_keys: bool = False
    to_all: bool = False

    @property
    def width(self) -> int:
        """How many numbers are sent with each tuple."""
        return self.digits.count(None) if self.ordered else 0


@dataclasses.dataclass(frozen=True)
class Step:
    """An operator in a stage.

    Attributes
    ----------
    node : Node
        The operator, as it runs.
    inputs, outputs : tuple of int
        Edges.
    digits : Digits
        The trails of the tuples that enter it.
    refines : bool
        Whether what leaves gets another digit: which of the tuples with its trail so far it is.
    tick : int or None
        The position at which the start of the epoch stands for an operator that waits for time to pass, or that makes a
        watermark.
    ordering : Ordering
        Whether what it does depends on the order of its tuples; or of those of one key of its stage.
    unordered : bool
        Whether nobody minds in what order its results leave: those of an elastic operator then leave as they come.
    """

    number: int
    node: Node
    stage: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    digits: Digits = ()
    refines: bool = False
    tick: int | None = None
    ordering: Ordering = Ordering.NEEDED
    unordered: bool = False

    @property
    def waits(self) -> bool:
        """Whether keys are called at punctuations, at the start of epochs, or when a time has come."""
        logic = self.node.logic
        return isinstance(logic, Keyed) and bool(logic.punctuated or logic.ticked or logic.timed)

    @property
    def is_timed(self) -> bool:
        """Whether keys are called when a time has come."""
        return isinstance(self.node.logic, Keyed) and bool(self.node.logic.timed)

    @property
    def makes_watermark(self) -> bool:
        """Whether a watermark has its name."""
        logic = self.node.logic
        return isinstance(logic, Watermark) or (isinstance(logic, Keyed) and logic.by_watermark)

    @property
    def takes_arrivals(self) -> bool:
        """Whether it must see its inputs tuple by tuple in their common order, with what happens between."""
        return isinstance(self.node.logic, Keyed) and (len(self.node.inputs) > 1 or self.waits)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Steps that run together.

    Attributes
    ----------
    number : int
    depth : int
        How many shuffles lie before it.
    steps : tuple of int
        In an order in which inputs come first; the first is the entry.
    kind : str
        ``source``: runs where a source is read. ``keyed``: channels by key. ``spread``: channels that tuples are
        dealt out to in turn. ``single``: one channel, in order.
    name : str
        The entry's operator, for people.
    routes : mapping
        Operator with state → the columns of its own key that the stage is partitioned by.
    reason : str
        Why it begins where it begins.
    partitioned_by : tuple of str
        The columns of its source that tell which channel a tuple belongs to, if the source is partitioned by them.
    partitions : int
        How many channels that makes, for ever; 0: they are counted and balanced as ever.
    local : bool
        It runs where its source is read: there is no shuffle before it.
    """

    number: int
    depth: int
    steps: tuple[int, ...]
    kind: str
    name: str
    routes: Mapping[str, tuple[str, ...]]
    reason: str = ""
    partitioned_by: tuple[str, ...] = ()
    partitions: int = 0
    local: bool = False

    @property
    def is_region(self) -> bool:
        """Whether it has channels; `name` is then what `query.rescale` and progress call it."""
        return self.kind != "source"

    @property
    def is_balanced(self) -> bool:
        """Whether it is ours to say which of its channels has which keys."""
        return self.kind == "keyed" and not self.partitions

    @property
    def is_at_source(self) -> bool:
        """Whether it runs in the tasks that read a source: numbers there count from the start of a piece."""
        return self.kind == "source" or self.local


@dataclasses.dataclass(frozen=True)
class Exit:
    """Where tuples leave: an output of the program, or a feedback edge (`loop`: its name)."""

    node: Node
    edges: tuple[int, ...]
    loop: str = ""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A program, laid out."""

    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    stages: tuple[Stage, ...]
    exits: tuple[Exit, ...]

    @property
    def depth(self) -> int:
        """How many shuffles an epoch has."""
        return max(stage.depth for stage in self.stages)

    @property
    def sources(self) -> list[Node]:
        """Sources and feedback edges, in the order in which their tuples come within an epoch."""
        return [self.steps[stage.steps[0]].node for stage in self.stages if stage.kind == "source"]

    def at_depth(self, depth: int) -> list[Stage]:
        return [stage for stage in self.stages if stage.depth == depth]

    def nodes(self, stage: Stage) -> list[Node]:
        return [self.steps[number].node for number in stage.steps]

    def stateful(self) -> Iterator[tuple[Stage, Node]]:
        """Operators with state, with the stage of each."""
        for stage in self.stages:
            for node in self.nodes(stage):
                if isinstance(node.logic, Keyed):
                    yield stage, node

    def watermark_ticks(self) -> dict[str, int]:
        """Operators of `event_time` → where the start of the epoch stands for them."""
        return {
            step.node.name: step.tick
            for step in self.steps
            if isinstance(step.node.logic, Watermark) and step.tick is not None
        }

    def watermarks_made(self) -> list[tuple[str, tuple[str, ...]]]:
        """The watermarks that are made of others, and these, in an order in which inputs come first."""
        return [
            (step.node.name, tuple(dict.fromkeys(name for at in step.inputs for name in self.edges[at].watermarks)))
            for step in self.steps
            if step.makes_watermark and not isinstance(step.node.logic, Watermark)
        ]

    def watermarks_read(self, step: Step) -> dict[int, tuple[str, ...]]:
        """The place of each input of a step → the watermarks that it reads there."""
        found: dict[int, tuple[str, ...]] = {}
        for number in step.inputs:
            edge = self.edges[number]
            found[edge.place] = (*found.get(edge.place, ()), *edge.watermarks)
        return found

    def inputs_of(self, stage: Stage) -> list[Edge]:
        """The edges by which tuples enter a stage."""
        return [self.edges[number] for number in self.steps[stage.steps[0]].inputs]
