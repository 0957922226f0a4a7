"""What a long run is measured by: the memory of each process, the files it leaves, the time it takes; and what grew.

Memory is what a process has of its own (`RssAnon`): segments that are mapped from files are the system's to take back.
Of the JVM it is the heap after a full collection, because what it has not collected yet says nothing.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIFTHS = 5
_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Sample:
    """A look at a run that goes on; what does not exist there is 0.

    Attributes
    ----------
    done : int
        Epochs, or restarts, so far.
    seconds, processor_seconds : float
        What one takes: of the clock, the median since the look before; of all processors, the mean.
    recovery_seconds : float
        From the start of a driver until it is ready for its first epoch, the median.
    driver_mib, jvm_mib, worker_mib : float
        Of the driver's process, of the JVM's heap, of the largest Python worker.
    files, manifest_bytes : int
        Of the checkpoint, without what Spark and the user's input have there; the newest manifest.
    left : int
        Files of the output directory that are no output.
    load : float
        The machine's load average.
    """

    done: int
    seconds: float = 0.0
    processor_seconds: float = 0.0
    recovery_seconds: float = 0.0
    driver_mib: float = 0.0
    jvm_mib: float = 0.0
    worker_mib: float = 0.0
    files: int = 0
    manifest_bytes: int = 0
    left: int = 0
    load: float = 0.0


def growth(values: Sequence[float]) -> float:
    """How much larger the median of the last fifth is than that of the second, as a share; 0 if nothing was seen."""
    fifth = max(1, len(values) // FIFTHS)
    second = statistics.median(values[fifth : 2 * fifth] or values)
    return round(statistics.median(values[-fifth:]) / second - 1.0, 4) if second else 0.0


def own_mib(process: int | str = "self") -> float:
    """Memory of a process that no file backs."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    found = [int(line.split()[1]) for line in lines if line.startswith("RssAnon")]
    return found[0] * 1024 / _MIB if found else 0.0


def driver_mib() -> float:
    """This process, without what it could give back."""
    gc.collect()
    return own_mib()


def heap_mib(spark: Any) -> float:
    """The JVM's heap after a full collection: the least of a few, since epochs go on beside."""
    memory = spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    found = []
    for _ in range(3):
        memory.gc()
        found.append(memory.getHeapMemoryUsage().getUsed() / _MIB)
    return min(found)


def worker_mib() -> float:
    """The largest of the Python processes that the JVM of this process has started."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            name, _, rest = text.partition("(")[2].rpartition(")")
            names[int(entry)], parents[int(entry)] = name, int(rest.split()[1])
    found = [0.0]
    for process in parents:
        line = [process]
        while line[-1] in parents and line[-1] != os.getpid():
            line.append(parents[line[-1]])
        if line[-1] == os.getpid() and any(names[each] == "java" for each in line[1:]):
            found.append(own_mib(process))
    return max(found)


def checkpoint_files(place: Path) -> tuple[int, int, int]:
    """Our files of a checkpoint, the size of its newest manifest, and what lies in the outputs beside parts."""
    ours = place / "checkpoint" / "anabranch"
    count = sum(len(files) for folder, _, files in os.walk(ours) if "sources" not in Path(folder).parts)
    manifests = sorted((ours / "epochs").glob("*.json"))
    left = [path for path in place.glob("out*/*") if not path.name.startswith("part-") and path.suffix != ".crc"]
    return count, manifests[-1].stat().st_size if manifests else 0, len(left)
