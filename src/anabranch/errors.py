"""Every error the user can see.

Each says where (operator and line), what was expected, what was found, and what to do next.
"""

from __future__ import annotations

import json


class AnabranchError(Exception):
    """The base of all errors of this library."""


class ProgramError(AnabranchError):
    """The program is wrong: found while it is built, before anything runs."""


class SchemaError(ProgramError):
    """A column, a type or a schema does not fit."""


class OrderError(ProgramError):
    """A source has no order that is a function of its data."""


class InputError(AnabranchError):
    """A row of the input cannot be read or does not fit the source's schema."""


class OperatorError(AnabranchError):
    """An operator raised, or returned what its schema does not allow, for one tuple.

    Attributes
    ----------
    operator : str
        The operator's name and the line that put it into the program.
    row : str
        The tuple that was being processed, as text.
    epoch : int or None
        The epoch it happened in; None in a sequential run.
    """

    def __init__(self, message: str, operator: str = "", row: str = "", epoch: int | None = None) -> None:
        super().__init__(message)
        self.operator = operator
        self.row = row
        self.epoch = epoch

    def __reduce__(self) -> tuple[type, tuple[str, str, str, int | None]]:
        # The error crosses from a Python worker to the driver; the default would lose its fields.
        return type(self), (str(self), self.operator, self.row, self.epoch)


class StateError(AnabranchError):
    """State was used in a way that cannot be kept."""


class CheckpointError(AnabranchError):
    """The checkpoint location does not fit the program, or what it holds is damaged."""


class EpochTaken(CheckpointError):  # noqa: N818 - an event: the runner goes on from what the other one committed
    """Another driver committed the epoch that this one ran."""


class MissingSegments(AnabranchError):  # noqa: N818 - not the user's error: the driver answers it
    """A task needs segments that its host does not have; the driver supplies them and runs the tasks again."""

    def __init__(self, names: list[str] | str) -> None:
        self.names = names.split("\n") if isinstance(names, str) else list(names)
        super().__init__("\n".join(self.names))


class ShuffleNeeded(AnabranchError):  # noqa: N818 - not the user's error: the driver answers it
    """Tuples of one channel were not read by one task in their order; the driver has the epoch run with a shuffle."""


class OutputTooLarge(AnabranchError):  # noqa: N818 - not the user's error: the driver answers it
    """A task has more output than should pass through the driver; the driver has tasks write it."""


class SinkError(AnabranchError):
    """The sink cannot take the output."""


class StorageError(CheckpointError, SinkError):
    """A file cannot be written or read: the disk is full, the path is read-only, a quota is used up."""


class VerifyError(AnabranchError):
    """Keys that were run again on one thread gave something else than the tasks did: option ``verify``.

    Attributes
    ----------
    file : str
        Where everything that is needed to run it again was written.
    """

    def __init__(self, message: str, file: str = "") -> None:
        super().__init__(message)
        self.file = file

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.file)


class WorkerMemoryError(AnabranchError):
    """There was not enough memory for the part of a task."""


class JavaNotFoundError(AnabranchError):
    """There is no Java 17 or newer to run Spark with."""


def error_to_json(error: AnabranchError) -> str:
    """An error as text, to cross from a task to the driver."""
    fields: dict[str, str | int | None] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, OperatorError):
        fields |= {"operator": error.operator, "row": error.row, "epoch": error.epoch}
    return json.dumps(fields)


def error_from_json(text: str) -> AnabranchError:
    """The error that `error_to_json` wrote."""
    fields = json.loads(text)
    kind = globals()[fields.pop("type")]
    return kind(fields.pop("message"), **fields)
