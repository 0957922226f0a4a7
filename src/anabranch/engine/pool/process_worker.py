"""What runs in a process of a pool: takes rows from a pipe, makes the calls, answers by another with the results.

Messages are a length in 8 bytes and a pickle. The first is the function, what is to hold where it is called
(`engine/thread_settings.py`), and the directories modules are found in; then
each is a list of rows, answered by (True, result) or (False, what was raised) for each. Rows and results travel as
state is kept (`state/codec.py`): a set is gone through in the same order there and here, and a NaN is the same one.
When there are no more, or whoever asks has ended, so does the process: nothing of it outlives whom it belongs to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import select
import signal
import struct
import sys
import threading
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


def _travelling(calls: Any, result: Any) -> bytes | tuple[bytes]:
    """A result as it travels; of one that cannot, what is wrong with it as a result is told first."""
    try:
        return packed(result)
    except Exception:
        calls.fitted(result)
        raise


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


def end_with(life: int) -> None:
    """End this process, and those that it starts, when a pipe closes that nobody writes to.

    The system sends a signal, also to code that holds the interpreter's lock and never comes back; a thread waits as
    well, for systems that do not.
    """
    with contextlib.suppress(OSError):
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)

    def wait() -> None:
        while not select.select([life], [], [])[0]:
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="elastic-life", daemon=True).start()


def main() -> None:
    """Serve calls until there are no more questions."""
    questions, answers_to, life = map(int, sys.argv[1:4])
    for each in (questions, answers_to, life):
        os.set_inheritable(each, False)  # not those of processes that user code starts
    end_with(life)
    with os.fdopen(questions, "rb") as arriving, os.fdopen(answers_to, "wb") as leaving:
        _serve(arriving, leaving)


def _open(calls: Any) -> BaseException | None:
    """Let what is called get what it needs; what was raised."""
    from anabranch.program.elastic import OpenFailed

    try:
        calls.open()
    except BaseException as found:
        return OpenFailed(portable(found))
    return None


def _serve(arriving: IO[bytes], leaving: IO[bytes]) -> None:
    import cloudpickle

    from anabranch.program.elastic import OpenFailed
    from anabranch.program.whole_copies import loaded

    calls: Any = None
    problem: BaseException | None = None
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        path, work = pickle.loads(receive(arriving))
        sys.path[:] = path
        try:
            calls, settings = loaded(work)
            settings.hold()
        except BaseException as found:
            problem = OpenFailed(portable(found))
        if problem is None:
            problem = _open(calls)
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
                    answers.append((True, _travelling(calls, results[0])))
                except BaseException as found:
                    answers.append((False, portable(found) if problem is None else found))
            send(leaving, cloudpickle.dumps(answers))
            if problem is not None and calls is not None:  # whoever comes next may find somebody there
                problem = _open(calls)
    if calls is not None and problem is None:
        calls.close()


if __name__ == "__main__":
    main()
