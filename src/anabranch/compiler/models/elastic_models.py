"""Elastic operators: what may have several calls under way at once.

Whoever says `elastic=True` says that calls do not depend on each other. What cannot be followed in the code (a
connection, a library) is believed; what is seen to be kept from one call to the next is refused, with its line.
"""

from __future__ import annotations

import dataclasses

from anabranch.compiler.models.built_in import ORDERING_REASONS
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.facts import Kind
from anabranch.errors import ProgramError
from anabranch.program.elastic import ElasticFunction, settings_of
from anabranch.program.graph import Node
from anabranch.program.model import Cause, Model, Ordering, Property, State


def is_elastic(node: Node) -> bool:
    """Whether several calls of an operator may be under way at once."""
    return isinstance(getattr(node.logic, "function", None), ElasticFunction)


def elastic_model(node: Node, model: Model, found: Inference) -> Model:
    """The model of an elastic operator; ProgramError if it has state."""
    settings = settings_of(node.logic)
    writes = found.facts.of(Kind.WRITE)
    if settings is not None and settings.keeps_state:
        why = (
            "elastic: its author says that it keeps state under a lock of its own; there is one in each worker "
            "process, it is in no checkpoint, and a crash loses it"
        )
    elif writes or found.dicts or model.state.value is State.PARTITIONED:
        what = (
            f"{writes[0].text} ({writes[0].location})" if writes else f"{model.state.reason} ({model.state.location})"
        )
        raise ProgramError(
            f"{node.title}: it cannot be elastic, because it has state: {what}. Calls that are under way at the same "
            "time would change it in no certain order. Leave elastic=True out; or keep the state in an operator of its "
            "own (process with by=…) and call only what takes long in the elastic one. If it may be lost, is guarded "
            "by a lock of its own, and the order of the results is given up (option order=none): state='locked'"
        )
    else:
        why = "elastic: its author says that calls are independent"
    notes = tuple(
        Property("note", f"taken on trust, because it is elastic: {block.reason}", block.location)
        for block in model.blocks
    )
    return dataclasses.replace(
        model,
        state=Property(State.STATELESS, why, node.location, Cause.DECLARED),
        blocks=(),
        key=None,
        remedy="",
        case=0,
        logic=None,
        notes=(*model.notes, *notes),
        ordering=Property(Ordering.TOLERANT, ORDERING_REASONS[Ordering.TOLERANT], node.location),
    )
