"""Whose punctuations an operator waits for; programs in which they cannot come are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import ProgramError
from anabranch.program.graph import Node
from anabranch.program.model import Input, Model, Output


def check_punctuations(order: Sequence[Node], models: Mapping[int, Model]) -> dict[int, list[Node]]:
    """Which operators depend on the punctuations of which; errors where an expecting port has not one stream.

    A stream is punctuated if its port generates punctuations, or preserves those of a single punctuated
    input; two punctuated streams that meet are one stream without punctuations.
    """
    maker: dict[int, Node | None] = {}
    lost_at: dict[int, Node] = {}
    dependents: dict[int, list[Node]] = {}
    for node in order:
        model = models[node.id]
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
