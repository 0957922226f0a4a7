"""What `explain` prints: the plan, and if asked for the code that its tasks run."""

from __future__ import annotations

import json
from collections.abc import Collection

from anabranch.compiler.explaining.explain import explain_data
from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.plan import Plan
from anabranch.engine.worker.explained_code import explained_code
from anabranch.errors import ProgramError
from anabranch.program.options import OVER_COLUMNS


def explained(
    plan: Plan,
    form: str = "text",
    extended: bool = False,
    running: RunningQuery | None = None,
    columns: Collection[str] = OVER_COLUMNS,
) -> str:
    """The plan in a form; `extended` by the code of its tasks. `columns` is the query's option."""
    layout = running.layout if running is not None else plan.laid_out
    if not extended or layout is None:
        return plan.explain(form, running)
    code = explained_code(layout, columns)
    if form == "json":
        return json.dumps({**explain_data(plan, running), **code.to_data()}, indent=2, ensure_ascii=False)
    if form != "text":
        raise ProgramError(f"explain({form!r}, extended=True): code is shown as 'text' and 'json' only")
    return f"{plan.explain(form, running)}\n{code.to_text()}"
