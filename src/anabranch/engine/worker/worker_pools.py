"""The pools of this process, and what the processes of a host learnt.

A Python worker of Spark's serves many tasks, and a pool lives as long as its worker: threads, connections and the level
that was found stay from task to task and from epoch to epoch. It is bound to the operator of the unpickled program, so
it goes when the worker turns to another program.

What a pool learnt is also written down on the host, one small file for each operator and process: a process that begins
takes over the newest, instead of searching anew. Processes come and go (Spark ends those that were idle for a
minute), and a host has one for each task that runs at a time. Spark gives tasks to idle processes in turn, so one that
has rested while another found a level takes that over, too.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.level_controller import LevelController
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.work import Crew
from anabranch.engine.reports import ElasticReport
from anabranch.engine.worker.accumulating_step import BlockCalls, accumulating_step
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import StateTable
from anabranch.engine.worker.elastic_steps import Calls, elastic_step
from anabranch.engine.worker.unordered_step import UnorderedStep
from anabranch.errors import OperatorError
from anabranch.operators.accumulation import accumulation_of
from anabranch.program.elastic import Concurrency, LoopBlocked, settings_of
from anabranch.program.graph import Node

if TYPE_CHECKING:
    from anabranch.engine.pool.loop_crew import EventLoop

_THREADS_MAX = 128
_FLIGHTS_MAX = 1024
_NOTE_AGE_S = 3600.0
"""What was learnt longer ago says little."""


def level_bounds(settings: Concurrency) -> tuple[int, int]:
    """The lowest and the highest level."""
    if settings.max_workers is not None:
        return settings.min_workers, settings.max_workers
    most = {"threads": _THREADS_MAX, "async": _FLIGHTS_MAX, "processes": os.cpu_count() or 1}[settings.kind]
    return settings.min_workers, max(most, settings.min_workers)


def controller_for(settings: Concurrency) -> LevelController:
    """What decides on the level."""
    # Not above: a worker without elastic operators needs none of it, and should start fast.
    from anabranch.control.operator_levels import PaperLevels, searching_levels

    least, most = level_bounds(settings)
    return PaperLevels(most) if settings.controller == "paper" else searching_levels(least, most)


class HostNotes:
    """What pools of this host learnt, in files of a directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or Path(tempfile.gettempdir()) / f"anabranch-elastic-{getpass.getuser()}"

    def newest(self, operator: str, since: float = 0.0) -> dict[str, Any] | None:
        """What was learnt of an operator last, if that is not long ago, and after that time (of the wall's clock)."""
        best: tuple[float, Path] | None = None
        with contextlib.suppress(OSError):
            for path in self.directory.glob(f"{operator}-*.json"):
                with contextlib.suppress(OSError):
                    at = path.stat().st_mtime
                    if time.time() - at > _NOTE_AGE_S:
                        path.unlink()
                    elif best is None or at > best[0]:
                        best = at, path
        if best is None or best[0] <= since:
            return None
        try:
            found: dict[str, Any] = json.loads(best[1].read_text(encoding="utf-8"))
            return found
        except (OSError, ValueError):
            return None  # another process removed it, or was ended while it wrote

    def write(self, operator: str, memory: dict[str, Any]) -> None:
        """Note what this process learnt. A note that cannot be written is no error: it only saves time."""
        with contextlib.suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.directory / f"{operator}-{os.getpid()}.json"
            scratch = path.with_suffix(".new")
            scratch.write_text(json.dumps(memory), encoding="utf-8")
            scratch.replace(path)


def note_name(node: Node) -> str:
    """What notes call an operator: the same in all processes, and after a restart of the same program."""
    parts = (node.name, node.kind, str(node.location), str(node.schema), repr(settings_of(node.logic)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


class Pools:
    """The pools of a process: one for each elastic operator of the program that it runs."""

    def __init__(self, notes: HostNotes | None = None) -> None:
        self._notes = notes or HostNotes()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._loop: EventLoop | None = None
        self._pools: weakref.WeakKeyDictionary[Node, tuple[Pool, Calls | BlockCalls]] = weakref.WeakKeyDictionary()

    def of(self, node: Node) -> tuple[Pool, Calls | BlockCalls]:
        """The pool of an operator; it is made when it is first asked for."""
        with self._lock:
            found = self._pools.get(node)
            if found is None:
                found = self._pools[node] = self._made(node)
                weakref.finalize(node, _closed, *found)
            return found

    def step(
        self, node: Node, epoch: int, check: Callable[..., Batch], table: StateTable | None = None
    ) -> Callable[[Batch, Node], Batch]:
        """What an elastic operator does with a batch; accumulators have a table of state."""

        is_first = True

        def step(batch: Batch, node: Node) -> Batch:
            nonlocal is_first
            pool, calls = self.of(node)
            if is_first:
                self._catch_up(node, pool)
            is_first = False
            if isinstance(calls, BlockCalls):
                assert table is not None
                return accumulating_step(pool, calls, table, epoch, check)(batch, node)
            try:
                return elastic_step(pool, calls, epoch, check)(batch, node)
            except OperatorError as error:
                if isinstance(error.__cause__, LoopBlocked):
                    self.forget(node)
                raise

        return step

    def unordered_step(self, node: Node, epoch: int, check: Callable[..., Batch]) -> UnorderedStep:
        """What it does where nobody minds the order of its results, for one task."""

        def pool_of() -> tuple[Pool, Calls]:
            pool, calls = self.of(node)
            self._catch_up(node, pool)
            assert isinstance(calls, Calls), "accumulators have a step of their own"
            return pool, calls

        return UnorderedStep(node, pool_of, epoch, check)

    def _catch_up(self, node: Node, pool: Pool) -> None:
        """A task begins: if another process settled on a level while this one rested, that is where to go on."""
        settings = settings_of(node.logic)
        if settings is None or pool.rested_at is None:
            return
        memory = self._notes.newest(note_name(node), pool.rested_at + settings.period_s)
        if memory is not None and memory.get("settled", True):
            with contextlib.suppress(KeyError, TypeError, ValueError):  # of another version of this library
                pool.take_over(memory)

    def reports(self, nodes: Iterable[Node]) -> tuple[ElasticReport, ...]:
        """What the pools of some operators did since they were asked last; of those that did something."""
        found: dict[str, ElasticReport] = {}
        for node in nodes:
            pool, _ = self._pools.get(node, (None, None))
            if pool is not None and node.name not in found:
                counts = pool.take_counts()
                log = pool.controller.log
                found[node.name] = ElasticReport(
                    operator=node.name,
                    level=pool.level,
                    rate=pool.rate,
                    periods=counts.periods,
                    calls=counts.calls,
                    retries=counts.retries,
                    timeouts=counts.timeouts,
                    latencies={str(bucket): count for bucket, count in counts.latencies.counts.items()},
                    decision=f"{log[-1].branch}: {log[-1].reason}" if log else "",
                )
        return tuple(report for report in found.values() if report.calls)

    def close(self) -> None:
        """End all pools: no more calls."""
        with self._lock:
            for pool, calls in self._pools.values():
                _closed(pool, calls)
            self._pools.clear()

    def forget(self, node: Node) -> None:
        """A pool that can do nothing any more: the next one begins with threads of its own."""
        with self._lock:
            self._pools.pop(node, None)
            self._loop = None

    def _made(self, node: Node) -> tuple[Pool, Calls | BlockCalls]:
        calls: Calls | BlockCalls = BlockCalls(node) if accumulation_of(node.logic) is not None else Calls(node)
        settings = calls.settings
        controller = controller_for(settings)
        name = note_name(node)
        Neighbours.sweep(self._notes.directory)
        memory = self._notes.newest(name)
        if memory is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # of another version of this library
                controller.restore(memory)
        # Not above, for the same reason.
        from anabranch.engine.pool.loop_crew import EventLoop, LoopCrew
        from anabranch.engine.pool.process_crew import ProcessCrew
        from anabranch.engine.pool.thread_crew import ThreadCrew

        crew: Crew
        if isinstance(calls, BlockCalls):
            crew = ThreadCrew(calls.many, node.name)
        elif settings.kind == "async":
            self._loop = calls.loop = self._loop or EventLoop()
            crew = LoopCrew(calls.one, self._loop.get())
        elif settings.kind == "processes" and has_lock():
            crew = ProcessCrew(calls, calls.values, node.name)
            calls.is_elsewhere = True
        else:
            crew = ThreadCrew(calls.many, node.name)
        notes = self._notes

        def learnt(pool: Pool) -> None:
            notes.write(name, pool.controller.to_dict())

        others = Neighbours(self._notes.directory, f"{name}-{os.getpid()}-{next(self._numbers)}")
        pool = Pool(crew, calls.many, settings, controller, learnt=learnt, neighbours=others, name=node.title)
        return pool, calls


# Of this process: a task does not outlive itself, but its worker does.
POOLS = Pools()


def has_lock() -> bool:
    """Whether threads take turns in this interpreter; where they do not, processes are of no use."""
    asked: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return asked is None or asked()


def _closed(pool: Pool, calls: Calls | BlockCalls) -> None:
    pool.close()
    calls.close()
