"""What the tasks of an epoch gave back to the driver, and how it is put in order."""

from __future__ import annotations

import msgpack
import pyarrow as pa

from anabranch.compiler.layout.stages import Layout
from anabranch.engine.reports import Report, from_bytes
from anabranch.engine.worker.exchange import FAILURE, HEADER, MET, REPORT, RESULT, SAMPLE, is_relative, result_of
from anabranch.engine.worker.output_mergers import merged
from anabranch.engine.worker.packets import Positions, piece_of, unpack
from anabranch.engine.worker.retracing import Failure
from anabranch.engine.worker.samples import StepSample
from anabranch.errors import AnabranchError, MissingSegments, OutputTooLarge, error_from_json


class Results:
    """What the tasks of an epoch gave back.

    Parameters
    ----------
    rows : pyarrow.Table
    layout : Layout
    written : frozenset of int
        The exits whose tuples tasks were to write to files; of others, too, they may have.
    """

    def __init__(self, rows: pa.Table, layout: Layout, written: frozenset[int] = frozenset()) -> None:
        self._layout = layout
        self.reports: list[Report] = []
        self._parts: dict[int, list[tuple[bytes, int, pa.Buffer]]] = {at: [] for at in range(len(layout.exits))}
        self.samples: list[StepSample] = []
        self._positions = Positions()
        failures: dict[tuple[bytes, str], None] = {}
        self._met: list[Failure] = []
        for batch in rows.to_batches():
            for order, payload in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
                kind = order[0]
                if kind == RESULT:
                    exit_number, edge, coordinate = result_of(order)
                    self._parts[exit_number].append((coordinate, edge, payload.as_buffer()))
                elif kind == REPORT:
                    self.reports.append(from_bytes(payload.as_buffer()))
                elif kind == SAMPLE:
                    self.samples.append(StepSample.from_bytes(payload.as_py()))
                elif kind == HEADER:
                    self._positions.add(msgpack.unpackb(payload.as_buffer()))
                elif kind == MET:
                    self._met.append(Failure.from_bytes(payload.as_py()))
                else:
                    assert kind == FAILURE, f"a row of kind {kind} reached the driver"
                    failures[order, payload.as_py().decode()] = None
        if failures:
            errors = [error_from_json(text) for _, text in sorted(failures)]
            names = [name for error in errors if isinstance(error, MissingSegments) for name in error.names]
            too_large = next((error for error in errors if isinstance(error, OutputTooLarge)), None)
            raise MissingSegments(names) if names else too_large or errors[0]
        files = [file for report in self.reports for file in report.files]
        self.written = written | {file.exit for file in files}
        self.bytes = {at: sum(payload.size for *_, payload in parts) for at, parts in self._parts.items()}
        """Exit → the bytes of its tuples, whoever wrote them."""
        for file in files:
            self.bytes[file.exit] += file.bytes

    def first_error(self) -> AnabranchError | None:
        """Of the errors that tasks met while they retraced an epoch, the one that one thread would have met."""
        return min(self._met, key=self._place_of).error if self._met else None

    def _place_of(self, failure: Failure) -> tuple[int, ...]:
        first, *others = failure.trail
        return (first + (self._positions.base(bytes.fromhex(failure.piece)) if failure.piece else 0), *others)

    def tables(self) -> list[pa.Table]:
        """The tuples of each exit, in order."""
        return [self._table(at) for at in range(len(self._layout.exits))]

    def _table(self, number: int) -> pa.Table:
        found = self._layout.exits[number]
        schema = found.node.schema.arrow
        if not all(self._layout.edges[at].ordered for at in found.edges):
            parts = sorted(self._parts[number], key=lambda part: part[:2])  # what one channel made stays in its order
            return pa.Table.from_batches([unpack(payload, schema) for _, _, payload in parts], schema)
        # By coordinate: what is sorted already is then sorted quickly.
        parts = sorted(self._parts[number], key=lambda part: part[0])
        bases = [self._base(coordinate, edge) for coordinate, edge, _ in parts]
        return merged(self._layout, found, [(edge, payload) for _, edge, payload in parts], bases)

    def _base(self, coordinate: bytes, edge: int) -> int:
        """What makes the numbers of a packet positions."""
        return self._positions.base(piece_of(coordinate)) if is_relative(self._layout, self._layout.edges[edge]) else 0
