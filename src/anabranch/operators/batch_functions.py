"""`map_batches`: a function of many tuples at once, as Arrow or pandas has them.

    tuples ─► RecordBatch or DataFrame ─► the user's function ─► rows in order, one for each tuple (or with its number)

What it means is what it does with one tuple: a batch of one row in, the tuples of the rows that come out. How tuples
are cut into batches is nobody's promise, so a function must treat each row by itself. It cannot be proved that it does;
so of every task's first batch one row is given to it once more, alone, and must come out the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import ProgramError
from anabranch.operators.library_operator import LibraryOperator, UserFunction, configured
from anabranch.program.graph import FlatMap, Map
from anabranch.program.misfits import ShapeError
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema
from anabranch.program.table_columns import fitted_column

FORMS = ("arrow", "pandas")


class BatchFunction(LibraryOperator):
    """Calls a function with batches.

    Attributes
    ----------
    function : callable
        The user's.
    form : str
        What it is given, and gives: "arrow" or "pandas".
    rows_column : str
        The column of its result that says of which row of the batch a row is; empty: there is one for each, in order.
    inputs, outputs : Schema
    """

    function: Callable[[Any], Any]
    form: str
    rows_column: str
    inputs: Schema
    outputs: Schema
    takes_tuples = False

    def __call__(self, t: Any) -> Any:
        """The tuples that it makes of one."""
        arrays = self.inputs.arrays([[value] for value in tuple.__iter__(t)])
        _, columns = self.over(arrays, 1)
        rows = self.outputs.rows(columns)
        return rows if self.rows_column else rows[0]

    def over(self, arrays: Sequence[pa.Array], count: int) -> tuple[Sequence[int], list[pa.Array]]:
        """Of which row each row of the result is, and its columns."""
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=self.inputs.arrow)
        made = type(self).function(self._given(batch))
        table = self._table(made)
        names = list(self.outputs.names)
        missing = [name for name in [*names, *filter(None, [self.rows_column])] if name not in table.column_names]
        if missing:
            raise ShapeError(
                f"a batch with the columns {', '.join(table.column_names) or '(none)'}; expected {', '.join(names)}"
                + (f", and {self.rows_column!r}: the number of the row in the batch" if self.rows_column else "")
            )
        extra = [name for name in table.column_names if name not in (*names, self.rows_column)]
        if extra:
            raise ShapeError(f"a batch with the columns {', '.join(extra)}, which the output does not have")
        return self._rows(table, count), [self._column(table, at) for at in range(len(names))]

    def _given(self, batch: pa.RecordBatch) -> Any:
        if self.form == "arrow":
            return batch
        import pandas as pd

        # Arrow's own types: a null would turn a column of numbers into one of floats, but only in some batches.
        return batch.to_pandas(types_mapper=pd.ArrowDtype)

    def _table(self, made: Any) -> pa.Table | pa.RecordBatch:
        if self.form == "arrow":
            if isinstance(made, (pa.RecordBatch, pa.Table)):
                return made
            raise ShapeError(f"it gave a {type(made).__name__}; expected a pyarrow RecordBatch or Table")
        import pandas as pd

        if isinstance(made, pd.DataFrame):
            return pa.Table.from_pandas(made, preserve_index=False)
        raise ShapeError(f"it gave a {type(made).__name__}; expected a pandas DataFrame")

    def _rows(self, table: pa.Table | pa.RecordBatch, count: int) -> Sequence[int]:
        if not self.rows_column:
            if table.num_rows != count:
                raise ShapeError(
                    f"{table.num_rows} rows for a batch of {count}; give one for each, in order, or name a column "
                    "that says of which row each is: map_batches(…, rows='row')"
                )
            return range(count)
        column = table.column(self.rows_column)
        if column.null_count or (len(column) and not pa.types.is_integer(column.type)):
            raise ShapeError(f"the column {self.rows_column!r} must have a whole number in every row")
        rows: list[int] = column.to_pylist()
        if rows and not (min(rows) >= 0 and max(rows) < count):
            raise ShapeError(f"the column {self.rows_column!r} has numbers that are not between 0 and {count - 1}")
        if any(before > after for before, after in itertools.pairwise(rows)):
            raise ShapeError(f"the column {self.rows_column!r} must not go down: rows come in the order of the tuples")
        return rows

    def _column(self, table: pa.Table | pa.RecordBatch, at: int) -> pa.Array:
        fitted = fitted_column(table, self.outputs.arrow.field(at))
        return fitted.combine_chunks() if isinstance(fitted, pa.ChunkedArray) else fitted

    def differs(self, arrays: Sequence[pa.Array], at: int, rows: Sequence[int], columns: Sequence[pa.Array]) -> str:
        """What one row gives by itself, if it is not what it gave within its batch; empty if it is."""
        _, alone = self.over([array.slice(at, 1) for array in arrays], 1)
        mine = pa.array([row == at for row in rows], pa.bool_())
        within = [pc.filter(column, mine) for column in columns]
        expected, found = (repr(self.outputs.rows(each)) for each in (alone, within))
        return "" if expected == found else f"by itself {expected}, in a batch {found}"


def batch_logic(
    function: Callable[[Any], Any], form: str, rows: str | None, inputs: Schema, outputs: Schema, name: str
) -> tuple[Map | FlatMap, Schema]:
    """The operator of `map_batches`."""
    if form not in FORMS:
        raise ProgramError(f"form={form!r}; expected {' or '.join(map(repr, FORMS))}")
    if rows is not None and (not isinstance(rows, str) or not rows or rows in outputs):
        raise ProgramError(f"rows={rows!r}: expected the name of a column that the output does not have")
    made = configured(
        BatchFunction,
        name,
        selectivity=Selectivity.ANY if rows else Selectivity.ONE,
        functions=[UserFunction("a function of batches", function)],
        function=function,
        form=form,
        rows_column=rows or "",
        inputs=inputs,
        outputs=outputs,
    )
    return (FlatMap(made) if rows else Map(made)), outputs
