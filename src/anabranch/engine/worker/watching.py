"""What authors declared, watched on the first tuples of every task.

    forwards       a column of what is emitted is that of the tuple
    selectivity    as many tuples come out as were declared
    a key          an operator inside a stage is given keys of its own channel only: those that were forwarded
    nothing else   what the compiler could not follow, under a key or in a function that the library calls, keeps
                   nothing beside its state: whatever it leads to (`program/belongings.py`) holds after a batch what
                   it held before; on all tuples

What was proven of dicts is watched by the dicts themselves (`compiler/rewriting/watched_dicts.py`). Whether something
is kept that was declared not to be is found by running keys again (`engine/verifying`).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import keys_of
from anabranch.errors import ProgramError
from anabranch.operators.chosen_columns import Select
from anabranch.operators.joins import StaticEnrich
from anabranch.operators.key_columns import KeyColumns, WithoutColumns
from anabranch.operators.library_operator import LibraryOperator
from anabranch.program.belongings import Belongings
from anabranch.program.graph import FlatMap, Keyed, Map, Node
from anabranch.program.model import Declaration, Selectivity, declaration_of
from anabranch.state.codec import comparable

if TYPE_CHECKING:
    from anabranch.engine.worker.stage_flow import Arrival, Flow
    from anabranch.state.table import Table


class StageWatch:
    """Watches the steps of a stage in one task."""

    def __init__(self, layout: Layout, stage: Stage, tables: Mapping[str, Any], epoch: int, tuples: int) -> None:
        self._steps: dict[int, _StepWatch] = {}
        self._unfollowed = {
            number: Belongings(_code_of(layout.steps[number].node.logic))
            for number in stage.steps
            if layout.steps[number].node.unfollowed
        }
        self._epoch = epoch
        self._layout, self._tables = layout, tables
        for place, number in enumerate(stage.steps):
            step = layout.steps[number]
            declared = _declaration(step.node)
            # What enters a stage was routed by its key; what is made inside is believed to have kept it.
            table = tables.get(step.node.name) if place and stage.kind == "keyed" and not step.takes_arrivals else None
            if declared is not None or table is not None:
                self._steps[number] = _StepWatch(step, declared, table, epoch, tuples)

    def looks_at(self, step: Step) -> bool:
        """Whether what becomes of single tuples is watched."""
        return step.number in self._steps or step.number in self._unfollowed

    def before(self, step: Step, arrived: Flow) -> None:
        """A step is about to take a batch."""
        watch = self._steps.get(step.number)
        if watch is not None and watch.left > 0:
            watch.before(arrived.batch)

    def after(self, step: Step, arrived: Flow, made: Batch) -> None:
        """A step has made tuples of a batch, with its positions."""
        watch = self._steps.get(step.number)
        if watch is not None and watch.left > 0:
            watch.after(arrived.batch, made)

    def kept_nothing(self, step: Step, arrived: Flow | Arrival) -> None:
        """A step has taken what arrived: ProgramError if something beside its state is changed, which nobody keeps."""
        belongings = self._unfollowed.get(step.number)
        changed = belongings.changed() if belongings is not None else None
        if changed is None:
            return
        arrivals: Any = arrived
        batches = [arrivals.batch] if hasattr(arrived, "batch") else list(arrivals.batches.values())
        rows = [batch.rows[at] for batch in batches if len(batch) for at in (0, -1)]
        which = f"for the tuple {rows[0]!r}" if len(set(map(id, rows))) == 1 else f"between the tuples {rows!r:.400}"
        raise ProgramError(
            f"operator {step.node.title}, epoch {self._epoch}: it changed {changed} {which}, which is not kept for its "
            "key: every channel has its own, and it is forgotten. Keep it in a field declared with ab.state(…). "
            f"The compiler could not see it: {step.node.unfollowed}."
        )

    def shares_nothing(self) -> None:
        """All has been taken: ProgramError if the state of a key holds what is held elsewhere: it would be two."""
        for number, belongings in self._unfollowed.items():
            step = self._layout.steps[number]
            table = self._tables.get(step.node.name)
            if table is None:
                continue
            names = belongings.changing()
            for key, values in table.states():
                for name, value in zip(table.instances.names, values, strict=True):
                    shared = belongings.held_by(value, names)
                    if shared is not None:
                        raise ProgramError(
                            f"operator {step.node.title}, epoch {self._epoch}: {name} of the key {key!r} holds "
                            f"{shared}, which is held outside of its state, too: from the next epoch on it would be a "
                            "copy. Keep a copy from the beginning. "
                            f"The compiler could not see it: {step.node.unfollowed}."
                        )


def _code_of(logic: Any) -> list[Any]:
    """What of an operator is the user's: functions that the library calls; or its object, and what makes its state."""
    target = logic.prototype if isinstance(logic, Keyed) else getattr(logic, "function", logic)
    fields = logic.fields if isinstance(logic, Keyed) else ()
    if isinstance(target, LibraryOperator):
        return [*(each for _, each in target.users_code()), *(field.factory for field in fields)]
    return [target, *(field.factory for field in fields), *(field.default for field in fields)]


def _declaration(node: Node) -> Declaration | None:
    """What the author declared of the tuples that an operator makes, if that can be seen at a batch."""
    logic = node.logic
    if node.on_error != "fail":
        return None  # a call that fails emits nothing, or a letter
    target: Any = None
    if isinstance(logic, (Map, FlatMap)):
        if isinstance(logic.function, (Select, KeyColumns, WithoutColumns, StaticEnrich)):
            return None  # what the library says of itself it does
        target = logic.function
    elif isinstance(logic, Keyed):
        # By what it can do: its class would bring the compiler into workers that have no need of it.
        target = logic.prototype.target if hasattr(type(logic.prototype), "watched") else logic.prototype
    owner = target.__self__ if isinstance(target, types.MethodType) else None
    found = declaration_of(target, owner) if target is not None else None
    return found if found is not None and (found.forwards is not None or found.selectivity is not None) else None


class _StepWatch:
    def __init__(self, step: Step, declared: Declaration | None, table: Table | None, epoch: int, tuples: int) -> None:
        self._node = step.node
        self._declared = declared
        self._table = table
        self._epoch = epoch
        self.left = tuples

    def before(self, batch: Batch) -> None:
        if self._table is None:
            return
        first = batch if len(batch) <= self.left else batch.part(0, self.left)
        keys = keys_of(first, tuple(batch.schema.names.index(name) for name in self._node.key))
        _, strange = self._table.routes(list(set(keys)))
        if strange is not None:
            raise ProgramError(
                f"operator {self._node.title}, epoch {self._epoch}: it is given the tuple "
                f"{first.rows[keys.index(strange)]!r}, whose key belongs to another channel. An operator before it was "
                "declared to forward the key's column and does not; name in forwards only the columns that are copied"
            )

    def after(self, batch: Batch, made: Batch) -> None:
        count = min(self.left, len(batch))
        self.left -= count
        declared = self._declared
        positions = np.array(batch.positions[:count], dtype=np.int64)
        if declared is None or (len(positions) > 1 and not (np.diff(positions) > 0).all()):
            return  # what several tuples with one position became cannot be told apart
        places = np.flatnonzero(np.isin(made.position_array, positions)).tolist()
        outputs: dict[int, list[tuple[Any, ...]]] = {}
        for place, output in zip(places, made.picked(places), strict=True):
            outputs.setdefault(made.positions[place], []).append(output)
        for position, row in zip(positions.tolist(), batch.picked(range(count)), strict=True):
            self._check(declared, batch.schema.row_class(row), outputs.get(position, []))

    def _check(self, declared: Declaration, row: Any, outputs: list[tuple[Any, ...]]) -> None:
        if declared.selectivity is not None:
            least = 1 if declared.selectivity is Selectivity.ONE else 0
            most = len(outputs) if declared.selectivity is Selectivity.ANY else 1
            if not least <= len(outputs) <= most:
                made = f"it emitted {len(outputs)} tuples: {outputs!r:.300}"
                self._refuse(f"emit {declared.selectivity.value}", row, made)
        if declared.forwards is None:
            return
        names = self._node.schema.names if declared.forwards == "*" else declared.forwards
        for output in outputs:
            for name in names:
                value = output[self._node.schema.names.index(name)]
                if comparable([value]) != comparable([row[name]]):
                    self._refuse(f"forward {name!r}", row, f"it emitted {value!r} for it")

    def _refuse(self, what: str, row: Any, found: str) -> None:
        raise ProgramError(
            f"operator {self._node.title}, epoch {self._epoch}: declared to {what}, but for the tuple {row!r} {found}. "
            "Correct the declaration."
        )
