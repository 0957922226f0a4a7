"""Which operators may run in parallel together: chains, formed from left to right.

The conditions are those of *Safe*, section 3.1. For one operator: no state or partitioned state. For a chain: keys
that have columns in common (their intersection is the key of the chain), and that key forwarded unchanged from the
chain's start to every operator with state. An operator joins the chain of the operator it reads if every condition
holds; else it starts one; or it must run on one thread, and is in none.

A chain is what is *safe*; where its operators run is decided by `stages`. A column is followed under every name it
takes: a chain's key is a set of columns of the chain's input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, Logic, Node, Source, Spread
from anabranch.program.model import Key, Model, State


@dataclasses.dataclass(frozen=True)
class Chain:
    """Operators that any number of channels may run together.

    Attributes
    ----------
    number : int
    operators : tuple of str
        Names, in the order tuples pass them.
    key : tuple of str
        The columns of the chain's input that tuples are routed by; empty if any channel will do, or if the key is
        computed from the tuple.
    key_text : str
        The key as explanations show it.
    """

    number: int
    operators: tuple[str, ...]
    key: tuple[str, ...]
    key_text: str


@dataclasses.dataclass(frozen=True)
class Border:
    """Why a chain ends where it ends."""

    after: str
    before: str
    reason: str


@dataclasses.dataclass(frozen=True)
class PlannedOperator:
    """An operator with what is believed of it.

    Attributes
    ----------
    node : Node
    model : Model
    logic : Logic
        What to run: the node's own, or what the compiler made of it (case 2).
    chain : int or None
        The chain it is in; None if it must run on one thread.
    blocked : str
        For an operator in no chain, what keeps it out.
    remedy : str
        … and the smallest change that would free it.
    """

    node: Node
    model: Model
    logic: Logic
    chain: int | None
    blocked: str = ""
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> Key | None:
        return self.model.key


@dataclasses.dataclass(frozen=True)
class Atom:
    """A part of a chain's key: a column of its input, or a whole expression over it."""

    text: str
    columns: tuple[str, ...]
    is_column: bool = True


@dataclasses.dataclass
class Draft:
    """A chain while it is formed."""

    nodes: list[Node]
    key: frozenset[Atom] | None
    #: Columns of the last operator's output that are copies of columns of the chain's input.
    origins: dict[str, str]
    #: Who lost a column on the way: for the reason of a border.
    lost: dict[str, str]

    @classmethod
    def start(cls, node: Node, model: Model) -> Draft:
        """A chain that begins with an operator."""
        schema = node.schema if isinstance(node.logic, Source) or not node.inputs else node.inputs[0].schema
        draft = cls([], None, {name: name for name in schema.names}, {})
        draft.join(node, model)
        return draft

    def refusal(self, model: Model) -> str | None:
        """Why an operator cannot join; None if it can."""
        if model.state.value is State.STATELESS:
            return None
        assert model.key is not None
        traced = self._traced(model)
        if not traced:
            lost = next((self.lost[name] for name in model.key.columns if name in self.lost), None)
            who = lost or self.nodes[-1].name
            return f"its key {{{model.key.text}}} is not forwarded by {who}"
        if self.key is not None and not self.key & traced:
            mine = ", ".join(sorted(atom.text for atom in self.key))
            return f"the common key would be empty: {{{mine}}} and {{{model.key.text}}} have nothing in common"
        return None

    def join(self, node: Node, model: Model) -> None:
        """Put an operator at the end."""
        if model.state.value is State.PARTITIONED:
            traced = self._traced(model)
            self.key = traced if self.key is None else self.key & traced
        if not isinstance(node.logic, Source):
            copied = model.forwarding.value
            origins = {out: self.origins[of] for out, of in copied.items() if of in self.origins}
            for name in (*self.origins, *node.schema.names):
                if name not in origins:
                    self.lost.setdefault(name, node.name)
            self.origins = origins
        self.nodes.append(node)

    def _traced(self, model: Model) -> frozenset[Atom]:
        """An operator's key in terms of the chain's input; parts that were not forwarded are left out."""
        key = model.key
        if key is None:
            return frozenset()
        if key.expression:
            same = all(self.origins.get(name) == name for name in key.columns)
            known = bool(key.columns) or not self.nodes
            return frozenset({Atom(key.expression, key.columns, False)}) if same and known else frozenset()
        return frozenset(
            Atom(self.origins[name], (self.origins[name],)) for name in key.columns if name in self.origins
        )

    def key_columns(self) -> tuple[tuple[str, ...], str]:
        """The columns to route by, and the key as text."""
        columns = tuple(sorted(atom.text for atom in self.key or () if atom.is_column))
        if columns or not self.key:
            return columns, ", ".join(columns)
        return (), min(atom.text for atom in self.key)


@dataclasses.dataclass
class Formation:
    """Chains, and for every operator outside them what keeps it there."""

    drafts: list[Draft]
    borders: list[Border]
    outside: dict[int, str]


class Graph:
    """The program with its edges in both directions."""

    def __init__(self, order: Sequence[Node], outputs: Sequence[Node], models: Mapping[int, Model]) -> None:
        self.order = order
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
        return len(self.consumers[node.id]) + (node.id in self.outputs) + self.fed_back.get(node.id, 0)


def form_chains(
    graph: Graph, kept_out: Callable[[Node], str | None] | None = None, cuts: Mapping[int, str] | None = None
) -> Formation:
    """The chains of a program.

    Parameters
    ----------
    graph : Graph
    kept_out : callable, optional
        Why an operator can be in no chain; by default `not_parallel`.
    cuts : mapping, optional
        Operators that must begin a chain, and why.
    """
    formation = Formation([], [], {})
    chain_of: dict[int, Draft] = {}
    for node in graph.order:
        model = graph.models[node.id]
        reason = not_parallel(model) if kept_out is None else kept_out(node)
        if reason is not None:
            formation.outside[node.id] = reason
            for source in node.inputs:
                if source.id in chain_of:
                    formation.borders.append(Border(source.name, node.name, reason))
            continue
        draft = chain_of.get(node.inputs[0].id) if len(node.inputs) == 1 else None
        if draft is not None:
            refused = between(graph, node) or (cuts or {}).get(node.id) or draft.refusal(model)
            if refused is None:
                draft.join(node, model)
            else:
                formation.borders.append(Border(node.inputs[0].name, node.name, refused))
                draft = None
        if draft is None:
            draft = Draft.start(node, model)
            formation.drafts.append(draft)
        chain_of[node.id] = draft
        if node.id in graph.outputs:
            formation.borders.append(Border(node.name, "", "the program ends here"))
    return formation


def not_parallel(model: Model) -> str | None:
    """Why an operator can be in no chain, whatever is around it."""
    if model.state.value is State.UNKNOWN:
        return f"its state is unknown: {model.state.reason}"
    if model.state.value is State.PARTITIONED and model.key is None:
        return "its state is partitioned, but by no key"
    return None


def between(graph: Graph, node: Node) -> str | None:
    """What parts an operator from the one it reads, whatever their keys."""
    ways = graph.fan_out(node.inputs[0])
    if ways > 1:
        return f"the stream before it goes {ways} ways"
    return "tuples are spread here" if isinstance(node.logic, Spread) else None
