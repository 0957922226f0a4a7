"""Algorithms 1 and 2 of *Resources*, and direct migration: nothing is lost or doubled, and what they cost."""

import os
import random
from collections import Counter

import pytest

from anabranch.papers.resources.instances import Instance, Upstream
from anabranch.papers.resources.messages import Message, Snapshot, Tuple
from anabranch.papers.resources.migrating import MigrationCosts, MigrationTimes, MigrationWorld

SCHEDULES = int(os.environ.get("MIGRATION_SCHEDULES", "100"))


def random_run(seed: int) -> MigrationWorld:
    """Tuples, checkpoints and orders to migrate, all at random times; times of everything vary."""
    chance = random.Random(seed)
    costs = MigrationCosts(
        per_tuple_sent=chance.choice((0.0, 0.01, 0.5)),
        per_tuple_applied=chance.choice((0.0, 0.05, 0.4)),
        per_key=chance.choice((0.0, 0.1, 5.0)),
        queueing=chance.choice((0.0, 2.0, 20.0)),
        variation=chance.choice((0.0, 0.5, 1.0)),
    )
    world = MigrationWorld(chance.randint(1, 4), chance.randint(2, 4), costs, seed=seed)
    end = chance.choice((50.0, 400.0))
    for _ in range(chance.randint(50, 400)):
        upstream, key, value = chance.choice(world.upstreams), chance.choice("abcdefgh"), chance.randint(1, 99)
        world.at(chance.uniform(0, end), lambda u=upstream, k=key, v=value: u.emit(k, v))
    for _ in range(chance.randint(0, 10)):
        world.at(chance.uniform(0, end), world.checkpoint)
    for _ in range(chance.randint(1, 12)):
        way, node = chance.choice(("direct", "cpa", "cpal")), chance.randrange(len(world.instances))
        # What is assisted goes to who holds the checkpoint then.
        world.at(
            chance.uniform(0, end),
            lambda way=way, node=node: world.migrate(way, node if way == "direct" else world.holder),
        )
    world.run()
    return world


def check(world: MigrationWorld) -> None:
    expected: Counter[str] = Counter()
    for each in world.sent:
        expected[each.key] += each.value
    owners = [instance for instance in world.instances if instance.state is not None]
    assert [owner.node for owner in owners] == [world.owner]
    assert owners[0].state.values == dict(expected), "tuples were lost or doubled"
    assert set(world.outputs) == {(each.stream, each.number) for each in world.sent}, "results are missing"
    # One checkpoint, elsewhere; with what the buffers still have it is the state.
    holders = [instance for instance in world.instances if instance.checkpoint is not None]
    assert [holder.node for holder in holders] == [world.holder] != [world.owner]
    recovered = holders[0].checkpoint.copy()
    for upstream in world.upstreams:
        for each in upstream.buffer:
            recovered.apply(each)
    assert recovered.values == owners[0].state.values, "a failure would lose tuples"
    assert all(instance.idle for instance in world.instances)


def test_nothing_is_lost_or_doubled_under_random_schedules() -> None:
    ways: Counter[str] = Counter()
    duplicates = repeated = 0
    for seed in range(SCHEDULES):
        world = random_run(seed)
        check(world)
        ways.update(times.way for times in world.done)
        duplicates, repeated = duplicates + world.duplicates, repeated + world.repeated
    assert min(ways[way] for way in ("direct", "cpa", "cpal")) > SCHEDULES // 5
    assert duplicates + repeated > 0, "nothing came twice, so nothing was shown"


def applied_twice(self: Snapshot, each: Tuple) -> bool:
    self.values[each.key] = self.values.get(each.key, 0) + each.value
    self.reached[each.stream] = max(each.number, self.reached.get(each.stream, 0))
    return True


def redirected_first(self: Upstream, way: str, old: int, new: int) -> None:
    self._moving, self._targets = (old, new), (new,)
    self._world.after(1.5, lambda: self._send(new, "toState", fast=True, tuples=tuple(self.buffer)))
    self._send(old, "toCheckpoint")


def impatient(self: Instance, message: Message, handle=Instance._handle) -> None:
    """The first toCheckpoint will do."""
    if message.kind == "toCheckpoint" and self.state is not None:
        self._to_checkpoint.update(range(len(self._world.upstreams)))
    elif message.kind == "toCheckpoint":
        return
    handle(self, message)


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (Snapshot, "apply", applied_twice),
        (Upstream, "inform", redirected_first),
        (Instance, "_handle", impatient),
    ],
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, planted: object) -> None:
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises((AssertionError, ValueError)):
        for seed in range(SCHEDULES):
            check(random_run(seed))


def moved(way: str, *, keys: int = 100, replay: int = 200) -> MigrationTimes:
    """One migration of a group of so many keys, with so many tuples in the upstream buffers."""
    state = Snapshot({f"k{n}": 1 for n in range(keys)})
    world = MigrationWorld(4, 3, MigrationCosts(variation=0.3), state=state)
    for number in range(replay):
        world.at(number * 0.1, lambda n=number: world.upstreams[n % 4].emit(f"k{n % keys}", 1))
    world.run()
    begun = world.now + 100
    for number in range(200):
        world.at(begun + number, lambda n=number: world.upstreams[n % 4].emit(f"k{n % keys}", 1))
    world.at(begun + 20, lambda: world.migrate(way, 1))
    world.run()
    assert len(world.done) == 1
    return world.done[0]


def test_times_follow_what_the_paper_says_they_follow() -> None:
    small, large = ({way: moved(way, replay=n) for way in ("direct", "cpa", "cpal")} for n in (100, 2_000))
    assert large["cpa"].latency > 5 * small["cpa"].latency
    assert max(small["cpal"].latency, large["cpal"].latency) < 5  # some messages: it does not matter how many tuples
    assert large["cpal"].completion > 3 * small["cpal"].completion
    few, many = ({way: moved(way, keys=n) for way in ("direct", "cpa", "cpal")} for n in (100, 20_000))
    assert many["direct"].latency > 5 * few["direct"].latency
    assert many["direct"].completion > 5 * few["direct"].completion
    for way in ("cpa", "cpal"):
        assert many[way].latency < 1.5 * few[way].latency + 5
        assert many[way].completion < 1.5 * few[way].completion


def test_the_old_owners_state_becomes_the_checkpoint() -> None:
    world = MigrationWorld(2, 3, MigrationCosts())
    world.upstreams[0].emit("a", 1)
    assert not world.migrate("cpa", 2), "it has no checkpoint"
    assert world.migrate("cpal", 1)
    assert not world.migrate("direct", 2), "one at a time"
    world.run()
    assert (world.owner, world.holder) == (1, 0)
    assert world.instances[0].checkpoint.values == {"a": 1}
    assert world.upstreams[0].buffer == []
