"""`map_batches`: functions of many tuples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.api.building import must_be_callable, put
from anabranch.errors import SchemaError
from anabranch.operators.batch_functions import batch_logic
from anabranch.program.graph import caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def map_batches(
    stream: Stream,
    function: Callable[[Any], Any],
    schema: Any,
    *,
    form: str = "arrow",
    rows: str | None = None,
    name: str | None = None,
    on_error: str | None = None,
) -> Stream:
    """Tuples by the batch, as Arrow or pandas has them: for functions that compute with whole columns.

    A batch has some tuples that follow each other; how many is nobody's promise. The function gives a batch with one
    row for each of them, in order, so that what it makes of a row does not depend on the others of its batch. Of each
    task's first batch one row is tried alone; if that gives anything else, the query stops and says so.

    Parameters
    ----------
    function : callable
        Takes a ``pyarrow.RecordBatch`` and gives one, or a Table; with ``form="pandas"`` a DataFrame (with columns of
        Arrow's types, so that a null does not change a column's type).
    schema : str or class
        The output's columns, as in `map`. The result's columns are found by name, and must fit these types.
    rows : str, optional
        A column of the result that says of which row of the batch, from 0 on, each row is: then there may be none or
        several for each. It must not go down, and is not part of the output.
    on_error : "fail", "skip" or "dead_letter", optional
        As in `map`: a batch in which a call fails is taken tuple by tuple.

    Examples
    --------
    >>> import anabranch as ab, pyarrow as pa, pyarrow.compute as pc
    >>> def doubled(batch):
    ...     return pa.record_batch({"y": pc.multiply(batch["x"], 2)})
    >>> ab.from_rows([(1,), (2,)], "x long").map_batches(doubled, schema="y long").run_sequential()
    [(y=2), (y=4)]
    """
    location = caller_location()
    must_be_callable("map_batches", function, location)
    try:
        output = Schema.of(schema)
    except SchemaError as problem:
        raise SchemaError(f"map_batches at {location}: {problem}") from None
    inputs = stream.schema
    return put(
        stream,
        "map_batches",
        lambda called: batch_logic(function, form, rows, inputs, output, called),
        location,
        name,
        on_error=on_error,
    )
