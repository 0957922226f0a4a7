"""A cluster in one process: executors with caches of their own, that come, go, follow and are moved to.

The driver's own parts decide (placing, plans, standbys, slices); only the hosts are directories and the store is a
directory that nobody may map. So a schedule of kills, migrations and rescalings takes a fraction of a second.
"""

import dataclasses
import random
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from anabranch.control.channel_places import StandbySettings
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.executor_planner import ExecutorBounds, ExecutorState
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.driver.placing import Placing
from anabranch.engine.driver.waiting import Surroundings
from anabranch.engine.reports import ChannelReport
from anabranch.engine.worker.exchange import task_indexes
from anabranch.engine.worker.follow_task import FollowTask
from anabranch.program.graph import Keyed
from anabranch.state.files import LocalFiles
from anabranch.state.following import Following
from anabranch.state.host_cache import CacheSettings
from anabranch.state.object_files import S3Files
from anabranch.testing import ParallelRun, _sorted_batches


class Store(LocalFiles, S3Files):
    """A store that tasks reach by name only; counts what is read of state."""

    read_bytes = 0

    def read(self, name: str) -> bytes | None:
        data = LocalFiles.read(self, name)
        Store.read_bytes += len(data or b"") if name.startswith("state/") else 0
        return data

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        data = LocalFiles.read_range(self, name, start, size)
        Store.read_bytes += len(data or b"") if name.startswith("state/") else 0
        return data


class Cluster(Surroundings):
    """Executors, each with a host of its own, whose cache is a directory."""

    def __init__(
        self, root: Path, count: int, standbys: int, lag_bytes: int = 0, executors_max: int | None = None
    ) -> None:
        self._root = root
        self._made = 0
        self.present: list[str] = []
        self.standbys = standbys
        bounds = None if executors_max is None else ExecutorBounds(executors_max)
        # By this clock every epoch takes a second, so that work is load.
        clock = iter(range(10**9)).__next__
        self.placing = Placing(StandbySettings(standbys, lag_bytes=lag_bytes), bounds, clock)
        self.told: list[Any] = []
        self.work: dict[tuple[str, int], float] = {}
        """Channel → for how many seconds of an epoch it works."""
        self.tenants: dict[str, float] = {}
        """Executor → what others use of its host's one core."""
        for _ in range(count):
            self.add()

    def add(self) -> None:
        self.present.append(f"e{self._made}")
        self._made += 1

    def kill(self, identity: str) -> None:
        """An executor dies, and its disk with it."""
        self.present.remove(identity)
        shutil.rmtree(self.cache(identity).directory or "", ignore_errors=True)

    def cache(self, identity: str) -> CacheSettings:
        return CacheSettings(str(self._root / identity))

    def look(self) -> None:
        self.placing.executors = [ExecutorState(each, f"host-{each}", 1, 0, False) for each in self.present]

    def slots(self) -> int:
        return len(self.present)

    def restored(self) -> Any:
        self.look()
        return self.placing.restored()

    def placed(self, reports: Any) -> Any:
        reports = [
            dataclasses.replace(each, seconds=worked, processor_seconds=worked)
            if isinstance(each, ChannelReport) and (worked := self.work.get((each.name, each.channel), 0.0)) >= 0
            else each
            for each in reports
        ]
        own = dict.fromkeys(self.present, 0.0)
        for each in reports:
            if isinstance(each, ChannelReport) and each.place in own:
                own[each.place] += each.seconds
        busy = {each: (min(1.0, work + self.tenants.get(each, 0.0)), 1) for each, work in own.items()}
        told = self.placing.settled(reports, lambda place: place, busy)
        self.told.append(told[0])
        if told[1] is not None:
            for _ in range(told[1].executors):
                self.add()  # who was asked for comes
        return told


class HostedRun(ParallelRun):
    """A run whose channels have the caches of the executors they are placed on."""

    def __init__(self, stream: Any, cluster: Cluster, store: Path, chance: random.Random, **more: Any) -> None:
        self.cluster, self._chance = cluster, chance
        super().__init__(
            stream,
            str(store),
            files=Store(str(store / "anabranch")),
            shared=False,
            surroundings=cluster,
            cut_bytes=0,
            cache=CacheSettings(str(store.parent / "driver")),
            **more,
        )

    def _attempts(self, task: Any, rows: Any, index: int, random: Any) -> Any:
        layout = task.load().layout
        indexes = task_indexes(layout, task.depth, task.functions)
        if index == 0:
            stages = [(layout.stages[stage], number) for stage, number in map(indexes.stage_of, range(indexes.count))]
            functions = {stage.name: task.functions[stage.number] for stage, _ in stages}
            self.cluster.look()
            channels = [(stage.name, number) for stage, number in stages]
            self._plan = self.cluster.placing.job_plan(task.depth, channels, functions)
        stage, number = indexes.stage_of(index)
        wanted = self._plan.now[layout.stages[stage].name, number].identity
        # Spark may run a task elsewhere: its executor was busy.
        where = self._chance.choice(self.cluster.present) if self._chance.random() < 0.05 else wanted
        there = dataclasses.replace(task, state=dataclasses.replace(task.state, cache=self.cluster.cache(where)))
        return list(there.run(_sorted_batches(rows), index, where))

    def _compact(self, task: Any, wanted: Any) -> Any:
        """Compactions run where their channels do, as on Spark."""
        done: Future[Any] = Future()
        records = []
        for operator, channel, some in wanted:
            region = next(name for name, each in self.runner._owners.regions.items() if operator in each.routes)
            identity = self.cluster.placing.executor_of((region, channel))
            where = identity if identity in self.cluster.present else self.cluster.present[0]
            state = dataclasses.replace(task.state, cache=self.cluster.cache(where))
            records.append(dataclasses.replace(task, state=state)((operator, channel, some)))
        done.set_result(records)
        return done

    def follow(self, share: float = 1.0) -> None:
        """What standbys fetch between two epochs; only some of them, if a share is given."""
        runner = self.runner
        layout = runner.program.layout
        operators = {
            stage.name: [node.name for node in layout.nodes(stage) if isinstance(node.logic, Keyed)]
            for stage in layout.stages
        }
        version = runner._committer.version(runner.epochs_done, 0, runner._owners)
        self.cluster.placing.sized(version, operators)
        for identity, bundles in self.cluster.placing.followed().items():
            if identity in self.cluster.present and self._chance.random() < share:
                state = dataclasses.replace(version, cache=self.cluster.cache(identity))
                following = Following(lambda seconds: None)
                task = FollowTask(state, operators, 1 << 30)
                usable = [each for each in bundles if each[1] < version_channels(version, operators[each[0]])]
                task(usable, following)
                following.wait(10)
                self.cluster.placing.followed_by(identity, task(usable, following))


def version_channels(version: Any, operators: list[str]) -> int:
    """How many channels a region has."""
    return min((version.owners[name].channels for name in operators if name in version.owners), default=0)


def hosted(stream: Any, root: Path, chance: random.Random, **more: Any) -> HostedRun:
    """A run on a few executors, with bundles or without."""
    cluster = Cluster(
        root / "hosts", chance.randint(1, 4), chance.choice([0, 1, 1, 2]), executors_max=chance.choice([None, 4, 5])
    )
    return HostedRun(
        stream,
        cluster,
        root / "store",
        chance,
        channels=ElasticOptions(channels=None, channels_max=6, channels_initial=chance.randint(1, 4)),
        balancing=BalancingSettings(bundles=chance.choice([0, 8, 24])),
        seed=chance.randrange(1000),
        **more,
    )
