"""The plan as text: which operators run where, split by which key."""

from __future__ import annotations

from anabranch.compiler.graph import Node
from anabranch.compiler.stages import chain_of, stages_of


def explain_text(output: Node) -> str:
    """The stages of a program, one operator per line with the line it comes from."""
    source = chain_of(output)[0]
    lines = ["== Anabranch plan ==", f"source {source.name}  [{source.schema}]  ({source.location})"]
    for number, stage in enumerate(stages_of(output)):
        if number == 0:
            lines.append("stage 0: parallel, where the source is read" if stage.nodes else "")
        else:
            lines.append(f"  ╰─ shuffle: split by {', '.join(stage.key)}, merged by sequence number")
            lines.append(f"stage {number}: parallel channels, state partitioned by {', '.join(stage.key)}")
        for node in stage.nodes:
            by = f" by {', '.join(node.key)}" if node.key else ""
            details = f"  {node.details}" if node.details else ""
            lines.append(f"  {node.name}{by}{details}  → [{node.schema}]  ({node.location})")
    lines.append("  ╰─ merge by sequence number")
    lines.append("sink")
    return "\n".join(line for line in lines if line)
