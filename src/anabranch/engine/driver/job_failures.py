"""Why the tasks of an epoch failed, where that was neither a tuple nor an operator: with what to do about it.

an exception of Spark's ─► storage? memory? a module that workers lack? unreadable input? ─► an error of ours
"""

from __future__ import annotations

import re
import sys

from anabranch.errors import InputError, ProgramError, WorkerMemoryError
from anabranch.state.files import cannot_write, storage_problem

_UNREADABLE = ("FAILED_READ_FILE", "MALFORMED_RECORD", "MALFORMED_CSV", "CANNOT_READ", "Malformed records")
# What Python, Arrow and the JVM say when memory has run out. Spark tells the last lines of a worker's traceback.
_NO_MEMORY = re.compile(
    r"^\S*(MemoryError|OutOfMemoryError)\b.*|.*\b(?:malloc|realloc) of size \d+ failed.*|.*Cannot allocate memory.*",
    re.M,
)
# What Spark says of a worker, or an executor, that ended without a word.
_ENDED = re.compile(r".*(?:Python worker exited unexpectedly|ExecutorLostFailure).*")
_STOPPED = ("SPARK_JOB_CANCELLED", "InterruptedException")  # the query is stopped, and its workers with it
_SHOWN = 300
# What the library itself needs: whoever lacks it has another environment than the driver.
_OURS = frozenset({"anabranch", "cloudpickle", "msgpack", "numpy", "pyarrow", "pyspark"})


def explained(problem: Exception, epoch: int, sources: str) -> Exception:
    """Errors about storage, memory, modules and unreadable input, with what to do; others as they are.

    Parameters
    ----------
    problem : Exception
        What running the tasks raised.
    epoch : int
    sources : str
        The sources, as people know them.
    """
    why = storage_problem(problem)
    if why:
        return cannot_write(f"what epoch {epoch} wrote", why)
    text = str(problem)
    missing = re.search(r"ModuleNotFoundError: No module named '([^']+)'", text)
    if missing is not None:
        return _not_there(missing[1], epoch)
    memory = _memory(text, epoch)
    if memory is not None:
        return memory
    if any(mark in text for mark in _UNREADABLE):
        first = next((line for line in text.splitlines() if any(mark in line for mark in _UNREADABLE)), text)
        return InputError(
            f"source {sources}, epoch {epoch}: Spark cannot read a row of the input. The epoch "
            f"failed and nothing of it was written.\n{first.strip()[:1000]}"
        )
    return problem


def _memory(text: str, epoch: int) -> WorkerMemoryError | None:
    """The error for a worker that had not enough memory, or ended as such a one does; None if none did."""
    if any(mark in text for mark in _STOPPED):
        return None
    told, ended = _NO_MEMORY.search(text), _ENDED.search(text)
    if told is not None:
        what = f"epoch {epoch}: there was not enough memory for the part of a task."
        said = told[0]
    elif ended is not None:
        what = (
            f"epoch {epoch}: a worker ended without a word. The system ends processes when memory runs out; code that "
            "ends its own process, or a library that crashes, looks the same."
        )
        said = ended[0]
    else:
        return None
    return WorkerMemoryError(
        f"{what}\nA task holds what its operators hold for the keys that came, and what came to it of the epoch. "
        "Smaller epochs (maxFilesPerTrigger, maxOffsetsPerTrigger) and more channels (option channels) make that less; "
        "what is held for one key is in one task. spark.executor.pyspark.memory sets how much the workers of an "
        "executor may have together, so that an epoch fails before the machine does.\nNothing of the epoch was "
        f"written; a start with the same checkpoint goes on from there.\n{said.strip()[:_SHOWN]}"
    )


def _not_there(module: str, epoch: int) -> ProgramError:
    """The error for a module that workers do not have: what is missing, and what to do."""
    first = module.partition(".")[0]
    remedy = (
        f"They run another Python than this one: set PYSPARK_PYTHON={sys.executable} before the session is made, as "
        "ab.session() does; or install it in the Python that they run."
        if first in _OURS
        else f"Send it along: spark-submit --py-files {first}.py, or spark.sparkContext.addPyFile('{first}.py') "
        "before the query starts; or install it on every worker."
    )
    return ProgramError(
        f"epoch {epoch}: the workers have no module {module!r}, which the program needs.\n{remedy}\n"
        "Nothing of the epoch was written; a start with the same checkpoint goes on from there."
    )
