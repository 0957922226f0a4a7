"""Users' keyed methods over columns and slots: see `compiler/rewriting/state_slots` for the code that is generated.

    keys    "a" "b" "a"     ─► distinct, as a dictionary has them ─► their slots in the table (`state/slot_lists`)
    tuples   0   1   0      ─► one loop over positions, slots and columns, which reads and writes lists by slot

Everything is as if each key had its instance. Where keys or values are of types for which that is not sure, they have.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.compiler.rewriting.column_arguments import ColumnArguments, with_column_arguments
from anabranch.compiler.rewriting.slot_folds import fold_of
from anabranch.compiler.rewriting.state_slots import SlotCode, StateNames, with_slots
from anabranch.engine.worker import slot_sums
from anabranch.engine.worker.batch import Batch, ColumnBatch, of_values
from anabranch.engine.worker.key_slots import INT_LIMIT, is_key
from anabranch.engine.worker.timing import Stopwatch
from anabranch.errors import AnabranchError
from anabranch.operators.library_operator import LibraryOperator
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import to_values
from anabranch.state.shared_fields import IMMUTABLE

Step = Callable[[Batch, Node], Batch]


class CallChecks(Protocol):
    """What checks outputs, and tells errors with the tuple in hand."""

    def fitting(
        self, node: Node, columns: Sequence[Sequence[Any]], positions: Sequence[int], batch: Batch
    ) -> list[Sequence[Any]]:
        """Output columns as exact values of the schema."""

    def fitting_column(self, node: Node, place: int, column: Sequence[Any], batch: Batch) -> Sequence[Any]:
        """One of them, which has a value for each tuple."""

    def failed(self, node: Node, batch: Batch, problem: BaseException) -> AnabranchError:
        """The error for what a call raised."""


def slot_code(node: Node) -> SlotCode | None:
    """An operator's method over columns and slots; None if each key must have its instance, or it is only called."""
    state = state_names(node)
    if state is None or not isinstance(node.logic, Keyed):
        return None
    function = getattr(type(node.logic.prototype), node.logic.method)
    code = with_slots(function, node.inputs[0].schema.names, node.schema.names, state)
    # What ends a loop in C when it is raised is turned into another error in generators only.
    return code if code is None or code.loop is not None or inspect.isgeneratorfunction(function) else None


def slot_call(node: Node, lists: Sequence[list[Any]] = ()) -> ColumnArguments | None:
    """A method that is called for each tuple with the slot of its key and columns; None if it needs an instance.

    `lists` are what the fields are.
    """
    state = state_names(node)
    if state is None or not isinstance(node.logic, Keyed):
        return None
    function = getattr(type(node.logic.prototype), node.logic.method)
    given = dict(zip(state.given, [*lists, node.logic.prototype], strict=True)) if lists else {}
    return with_column_arguments(function, node.inputs[0].schema.names, state, given)


def state_names(node: Node) -> StateNames | None:
    """What of instances is state and configuration; None if they are more than that."""
    logic = node.logic
    if not isinstance(logic, Keyed) or logic.methods or logic.broadcast is not None or logic.takes_time:
        return None
    if isinstance(logic.prototype, LibraryOperator):
        return None  # these have ways of their own
    kind = type(logic.prototype)
    names = tuple(field.name for field in logic.fields)
    if not names or not _has_plain_attributes(kind, names):
        return None
    held = [name for name in vars(logic.prototype) if not hasattr(getattr(kind, name, None), "__set__")]
    constants = [name for name in dir(kind) if type(inspect.getattr_static(kind, name)) in IMMUTABLE]
    return StateNames(names, tuple(sorted({*held, *constants} - set(names))))


def _has_plain_attributes(kind: type, names: Sequence[str]) -> bool:
    """Whether attributes of instances are what their dict holds, and setting them sets that."""
    is_usual = kind.__setattr__ is object.__setattr__ and kind.__getattribute__ is object.__getattribute__
    return is_usual and not any(hasattr(getattr(kind, name, None), "__set__") for name in names)


def slot_step(node: Node, table: Any, calls: CallChecks, otherwise: Step, watch: Stopwatch | None = None) -> Step:
    """The step of a user's method; `otherwise` is what has an instance of each key, or calls it."""
    code = slot_code(node)
    if code is None or any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in node.schema.arrow.types):
        return otherwise
    return SlotStep(node, code, table, calls, otherwise, watch)


class SlotCalls:
    """Calls a method for each tuple with the slot of its key, or has it called with instances.

    `run` takes a batch, what is called, and what it is called with first, tuple by tuple.
    """

    def __init__(self, node: Node, table: Any, run: Callable[..., Batch], otherwise: Step) -> None:
        self._table = table
        self._run = run
        self._otherwise = otherwise
        self._places = places_of_key(node)
        self._called = slot_call(node, table.slots.values)

    def __call__(self, batch: Batch, node: Node) -> Batch:
        slots = slots_in(self._table, batch, self._places)
        if slots is None or self._called is None:
            return self._otherwise(batch, node)
        return self._run(batch, node, self._called, slots.tolist())


def places_of_key(node: Node) -> list[int]:
    """Where the columns of the key are."""
    return [node.inputs[0].schema.names.index(name) for name in node.key]


def slots_in(table: Any, batch: Batch, places: Sequence[int]) -> np.ndarray | None:
    """The slot of each tuple's key; None if instances must be taken."""
    if table.needs_instances or not isinstance(batch, ColumnBatch) or not len(batch):
        return None
    keys = distinct_keys([batch.untouched(place) for place in places], len(batch))
    slots = None if keys is None else table.slots_of(keys[0])
    return None if keys is None or slots is None else slots[keys[1]]


class SlotStep:
    """Takes batches over slots, or as they are."""

    def __init__(
        self, node: Node, code: SlotCode, table: Any, calls: CallChecks, otherwise: Step, watch: Stopwatch | None
    ) -> None:
        self._code = code
        self._table = table
        self._calls = calls
        self._otherwise = otherwise
        self._watch = watch
        self._fold = fold_of(code)
        self._places = places_of_key(node)
        assert isinstance(node.logic, Keyed)
        self._configuration = node.logic.prototype
        self._is_generator = inspect.isgeneratorfunction(getattr(type(node.logic.prototype), node.logic.method))

    def __call__(self, batch: Batch, node: Node) -> Batch:
        slots = slots_in(self._table, batch, self._places)
        if slots is None:
            return self._otherwise(batch, node)
        assert isinstance(batch, ColumnBatch)
        return self._taken(batch, node, slots)

    def _taken(self, batch: ColumnBatch, node: Node, slots: np.ndarray) -> Batch:
        code, count = self._code, len(node.schema.names)
        summed = self._summed(batch, node, slots)
        if summed is not None:
            return summed
        positions: list[int] = []
        columns: list[list[Any]] = [[] for _ in range(count)]
        given = [batch.positions, slots.tolist(), *(batch.values(place) for place in code.reads)]
        held = [*(column.append for column in columns), positions.append, node.schema.unpack]
        held += [*self._table.slots.values, self._configuration]
        is_loop = code.loop is not None and self._watch is None
        passed = code.passed if is_loop else None
        if passed is not None and not self._can_pass(passed, batch, node):
            if not self._is_generator:
                return self._otherwise(batch, node)
            passed, is_loop = None, False
        try:
            if is_loop and code.loop is not None:
                code.loop(*given, *held)
            else:
                process = code.make(*held)
                # A loop in C that keeps nothing: each call appends what it emits.
                deque(map(process if self._watch is None else self._watch.around(process), *given), maxlen=0)
        except AnabranchError:
            raise
        except Exception as problem:
            if passed is None:
                self._calls.fitting(node, columns, positions, batch)  # what does not fit came before what raises
            else:
                self._fitting(node, columns, passed, batch)
            raise self._calls.failed(node, batch, problem) from problem
        if passed is None:
            return of_values(node.schema, positions, self._calls.fitting(node, columns, positions, batch))
        values = self._fitting(node, columns, passed, batch)
        arrays = [batch.untouched(passed[at]) if at in passed else None for at in range(count)]
        return ColumnBatch(node.schema, batch.any_positions, arrays, values)

    def _summed(self, batch: ColumnBatch, node: Node, slots: np.ndarray) -> Batch | None:
        """The same of all keys at once, where the method only adds up; None: nothing was done."""
        passed = self._code.passed
        if self._fold is None or passed is None or self._watch is not None or len(batch) < slot_sums.ROWS_MIN:
            return None
        if not self._can_pass(passed, batch, node):
            return None
        kinds = dict(enumerate(node.schema.arrow.types))
        given = slot_sums.SlotSums(batch, slots, self._table.slots.values).run(self._fold, kinds)
        if given is None:
            return None
        arrays = [given[at] if at in given else batch.untouched(passed[at]) for at in range(len(kinds))]
        return ColumnBatch(node.schema, batch.any_positions, arrays)

    def _can_pass(self, passed: Any, batch: ColumnBatch, node: Node) -> bool:
        """Whether columns that are passed on are what the output has."""
        for at, place in passed.items():
            array, field = batch.untouched(place), node.schema.arrow.field(at)
            if array is None or array.type != field.type or (array.null_count and not field.nullable):
                return False
        return True

    def _fitting(
        self, node: Node, columns: Sequence[list[Any]], passed: Any, batch: Batch
    ) -> list[Sequence[Any] | None]:
        """The columns that are not passed on, as exact values."""
        return [
            None if at in passed else self._calls.fitting_column(node, at, column, batch)
            for at, column in enumerate(columns)
        ]


def distinct_keys(columns: Sequence[pa.Array | None], length: int) -> tuple[list[Any], np.ndarray] | None:
    """The keys of some tuples, as tables have them, and for each tuple which of them it has.

    None if some are of types of which Arrow might take two for one that are two for Python, or the other way round.
    """
    found: list[pa.Array] = []
    codes, size = np.zeros(length, dtype=np.int64), 1
    for array in columns:
        if array is None or not is_key(array.type):
            return None
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        count = max(1, len(encoded.dictionary))
        if size * count > INT_LIMIT:
            return None
        codes = codes * count + encoded.indices.to_numpy(zero_copy_only=False)
        size *= count
        found.append(encoded.dictionary)
    if len(found) == 1:
        return to_values(found[0]), codes
    together = pa.array(codes).dictionary_encode()
    rest, parts = together.dictionary.to_numpy(), []
    for dictionary in reversed(found):
        rest, own = np.divmod(rest, max(1, len(dictionary)))
        parts.append(to_values(dictionary.take(pa.array(own))))
    keys = list(zip(*reversed(parts), strict=True)) if parts else [()] * len(rest)
    return keys, together.indices.to_numpy()
