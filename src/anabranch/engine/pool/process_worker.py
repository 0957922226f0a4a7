"""What runs in a process of a pool: takes rows from its standard input, makes the calls, answers with the results.

Messages are a length in 8 bytes and a pickle. The first is the function with the directories modules are found in; then
each is a list of rows, answered by (True, result) or (False, what was raised) for each. Rows and results travel as
state is kept (`state/codec.py`): a set is gone through in the same order there and here, and a NaN is the same one.
When the input ends, so does the process: nothing of it outlives the worker it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import sys
from typing import IO, Any

_LENGTH = struct.Struct(">Q")


def send(stream: IO[bytes], message: bytes) -> None:
    """Write a message."""
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read a message; EOFError if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    message = stream.read(length)
    if len(message) < length:
        raise EOFError
    return message


def packed(value: Any) -> bytes | tuple[bytes]:
    """A row or a result as it travels: as data, exactly; objects of the user's, which are none, as a pickle."""
    from anabranch.errors import StateError
    from anabranch.state.codec import encode

    try:
        return encode(value)
    except StateError:
        import cloudpickle

        return (cloudpickle.dumps(value),)


def unpacked(data: bytes | tuple[bytes]) -> Any:
    """What `packed` was given."""
    from anabranch.state.codec import decode

    return decode(data) if isinstance(data, bytes) else pickle.loads(data[0])


class RemoteError(Exception):
    """Stands, in a class of the same name, for an exception of a worker process that could not travel."""


def portable(problem: BaseException) -> BaseException:
    """An exception as it can travel, with the lines it was raised at as notes."""
    from anabranch.engine.pool.work import CallExited
    from anabranch.program.graph import is_ours
    from anabranch.program.showing import frames_of, told

    frames = [f"  {f.filename}:{f.lineno} in {f.name}: {f.line}" for f in frames_of(problem) if not is_ours(f.filename)]
    if not isinstance(problem, Exception):
        problem = CallExited(problem)
    try:
        made: BaseException = pickle.loads(pickle.dumps(problem))
        if str(made) != str(problem):
            raise ValueError
    except Exception:
        kind: Any = type(type(problem).__name__, (RemoteError,), {})
        made = kind(told(problem).partition(": ")[2])
    for frame in frames[-2:]:
        made.add_note(frame)
    return made


def main() -> None:
    """Serve calls until the input ends."""
    arriving, leaving = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints must not come between the answers
    import cloudpickle

    from anabranch.program.elastic import OpenFailed

    calls: Any = None
    problem: BaseException | None = None
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        path, function = pickle.loads(receive(arriving))
        sys.path[:] = path
        try:
            calls = cloudpickle.loads(function)
            calls.open()
        except BaseException as found:
            problem = OpenFailed(portable(found))
        send(leaving, b"ready")
        while True:
            rows = unpacked(pickle.loads(receive(arriving)))
            answers: list[tuple[bool, Any]] = []
            results: list[Any] = []
            for row in calls.rows(rows) if problem is None else rows:
                results.clear()
                try:
                    if problem is not None:
                        raise problem
                    calls.many([row], results)
                    answers.append((True, packed(results[0])))
                except KeyboardInterrupt:
                    raise
                except BaseException as found:
                    answers.append((False, portable(found) if problem is None else found))
            send(leaving, cloudpickle.dumps(answers))
    if calls is not None:
        calls.close()


if __name__ == "__main__":
    main()
