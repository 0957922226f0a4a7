"""Random schedules of kills, migrations and rescalings on executors with caches: the output is the sequential one."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.api.session import from_epochs
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.state import host_cache
from anabranch.state.segment_cache import SegmentCache
from tests.faults.hosted_runs import Cluster, HostedRun, Store, hosted
from tests.faults.test_schedules import KEYED, check_state, random_row
from tests.programs import COLUMNS, STEPS, build, exact

pytestmark = pytest.mark.faults

SCHEDULES = int(os.environ.get("ANABRANCH_HOSTED_SCHEDULES", "50"))


def schedule(seed: int, root: Path) -> dict[str, int]:
    """Run one and check it; what happened how often."""
    chance = random.Random(seed)
    steps = chance.choices(sorted(STEPS), k=chance.randrange(2))
    steps.insert(chance.randrange(len(steps) + 1), chance.choice(KEYED))
    epochs = [[random_row(chance) for _ in range(chance.randrange(30))] for _ in range(chance.randrange(6, 16))]
    stream = build(from_epochs(epochs, COLUMNS), steps)
    run = hosted(stream, root, chance)
    cluster = run.cluster
    happened = dict.fromkeys(("kill", "come", "rescale", "move", "damage", "work", "tenant", "give back"), 0)
    for epoch in range(run.epochs):
        for _ in range(chance.randrange(3)):
            what = chance.choice(sorted(happened))
            if what == "kill" and len(cluster.present) > 1:
                cluster.kill(chance.choice(cluster.present))
            elif what == "come" and len(cluster.present) < 5:
                cluster.add()
            elif what == "rescale" and run.runner.adaptation.scaling.regions:
                scaling = run.runner.adaptation.scaling
                scaling.rescale(chance.choice(scaling.regions), chance.randint(1, 6))
            elif what == "move":
                bundled = {name: each for name, each in run.runner.functions.items() if each.bundles}
                if not bundled:
                    continue
                region, function = chance.choice(sorted(bundled.items()))
                moved = {chance.randrange(function.bundles): chance.randrange(function.channels) for _ in range(4)}
                run.runner.adaptation.move_bundles(region, moved, "just so")
            elif what == "damage":  # a copy is half-written
                copies = sorted((root / "hosts").rglob("*.segment*"))
                if not copies:
                    continue
                one = chance.choice(copies)
                half = one.read_bytes()[: one.stat().st_size // 2]
                one.unlink()  # it may be mapped
                one.write_bytes(half)
                host_cache._open = SegmentCache()  # as in a process that has not read it yet
            elif what == "work" and run.runner.functions:  # its channels need a part of a core, some most of one
                region, function = chance.choice(sorted(run.runner.functions.items()))
                cluster.work |= {(region, at): chance.choice([0.0, 0.3, 0.6, 0.9]) for at in range(function.channels)}
            elif what == "tenant":
                cluster.tenants[chance.choice(cluster.present)] = chance.choice([0.0, 0.5, 1.0])
            elif what == "give back" and cluster.placing.rather_back and len(cluster.present) > 1:
                for identity in set(cluster.placing.rather_back) & set(cluster.present):
                    cluster.kill(identity)  # its disk goes with it
            else:
                continue
            happened[what] += 1
        run.run_epochs(epoch, epoch)
        run.follow(chance.choice([0.0, 0.5, 1.0]))
    run.run_epochs(run.epochs)
    assert exact(run.output) == exact(stream.run_sequential()), f"schedule({seed}): {steps}"
    check_state(stream, root / "store", f"state of schedule({seed}): {steps}")
    happened["moves"] = sum(len(each.moves) for each in cluster.told if each is not None)
    for kind in ("restore", "re-place", "move", "add", "overloaded"):
        happened[f"plan: {kind}"] = sum(each.branch == kind for each in planned(run))
    return happened


def planned(run: HostedRun) -> list[Any]:
    """What plans of the period decided, of every region."""
    return [
        each for region in run.runner.functions for each in run.runner.decisions(region) if each.controller == "plan"
    ]


def test_whatever_happens_to_executors_the_output_is_the_sequential_one(tmp_path):
    found = [schedule(seed, tmp_path / str(seed)) for seed in range(SCHEDULES)]
    totals = {name: sum(each[name] for each in found) for name in found[0]}
    # Otherwise these schedules test too little.
    assert min(totals[name] for name in ("kill", "come", "rescale", "move", "moves")) >= SCHEDULES // 3, totals
    assert min(each for name, each in totals.items() if name.startswith("plan")) >= SCHEDULES // 10, totals
    assert totals["give back"] >= SCHEDULES // 25, totals


def totals_stream():
    return build(from_epochs([[(key, "a", float(key)) for key in range(400)]] * 6, COLUMNS), ["running"])


def totals_run(root: Path, executors: int, standbys: int, bundles: int) -> HostedRun:
    return HostedRun(
        totals_stream(), Cluster(root / "hosts", executors, standbys), root / "store", NeverElsewhere(),
        channels=ElasticOptions(channels=executors), balancing=BalancingSettings(bundles=bundles),
    )  # fmt: skip


class NeverElsewhere(random.Random):
    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("bundles", [0, 12])
def test_a_lost_executors_state_comes_from_standbys_and_none_of_it_from_the_store(tmp_path, bundles):
    run = totals_run(tmp_path, 3, 1, bundles)
    for epoch in range(3):
        run.run_epochs(epoch, epoch)
        run.follow()
    run.follow()
    (region,) = run.runner.functions
    before = Store.read_bytes
    run.cluster.kill("e1")
    run.run_epochs(3, 3)
    assert Store.read_bytes == before, "standbys had all of it"
    told = planned(run)
    assert [each.branch for each in told] == ["restore"] and "e1 is gone" in told[0].reason
    # The standbys are rebuilt, and it is told how long bundles were without.
    assert run.cluster.told[-1].unprotected
    run.follow()
    run.follow()
    run.run_epochs(4, 4)
    assert not run.cluster.told[-1].unprotected
    run.run_epochs(5)
    assert exact(run.output) == exact(totals_stream().run_sequential())
    if bundles:
        assert set(run.runner.functions[region].bundle_channels.tolist()) != {0, 1, 2} or run.cluster.told[-1].moves


def test_a_half_written_standby_is_fetched_again_by_who_takes_over(tmp_path):
    run = totals_run(tmp_path, 2, 1, 0)
    run.run_epochs(0, 2)
    run.follow()
    for copy in (tmp_path / "hosts" / "e0").rglob("*.segment"):
        half = copy.read_bytes()[: copy.stat().st_size // 2]
        copy.unlink()  # it may be mapped
        copy.write_bytes(half)
    host_cache._open = SegmentCache()  # as in a process that has not read it yet
    before = Store.read_bytes
    run.cluster.kill("e1")
    run.run_epochs(3, 3)
    assert [move.how for move in run.cluster.told[-1].moves] == ["CPA"]
    assert Store.read_bytes > before
    run.run_epochs()
    assert exact(run.output) == exact(totals_stream().run_sequential())


def test_where_all_hosts_are_full_it_is_said_once_and_nothing_else_happens(tmp_path, caplog):
    run = totals_run(tmp_path, 2, 1, 12)
    (region, function) = next(iter(run.runner.functions.items()))
    run.cluster.work = {(region, at): 1.0 for at in range(function.channels)}
    run.run_epochs()
    assert {each.branch for each in planned(run)} == {"overloaded"}
    assert caplog.text.count("overloaded: executor e0 has 100% of its slots busy, and no other has room") == 1
    assert not any(each.moved or each.moves for each in run.cluster.told) and len(run.cluster.present) == 2
    assert exact(run.output) == exact(totals_stream().run_sequential())


def test_what_new_owners_took_over_is_compacted_when_they_have_it_and_fetched_once(tmp_path):
    run = totals_run(tmp_path, 3, 0, 12)
    run.run_epochs(0, 2)
    (region, function) = next(iter(run.runner.functions.items()))
    compact, read = run._compact, []

    def compacting(task, wanted):
        before = Store.read_bytes
        done = compact(task, wanted)
        read.append((run.runner.epochs_done, Store.read_bytes - before))
        return done

    run.runner._committer._compact = compacting
    taken = {at: 1 for at in range(12) if function.bundle_channels[at] == 0}
    run.runner.adaptation.move_bundles(region, taken, "just so")
    run.run_epochs(3, 5)
    assert read and read[0] == (5, 0), read  # it moved with epoch 4
    assert exact(run.output) == exact(totals_stream().run_sequential())


def test_without_standbys_a_lost_executors_state_comes_from_the_store(tmp_path):
    run = totals_run(tmp_path, 3, 0, 0)
    run.run_epochs(0, 2)
    before = Store.read_bytes
    run.cluster.kill("e1")
    run.run_epochs(3, 3)
    assert Store.read_bytes > before


def test_a_full_cache_costs_reads_and_nothing_else(tmp_path, monkeypatch, caplog):
    """A disk that takes nothing: every epoch reads from the store, and one line says so."""
    from anabranch.errors import StorageError
    from anabranch.state.host_cache import LocalFiles as CacheFiles

    def full(self, name, data, modified=None):
        if "hosts" in self.root:
            raise StorageError("cannot write: No space left on device")
        return written(self, name, data, modified)

    written = CacheFiles.write
    monkeypatch.setattr(CacheFiles, "write", full)
    run = totals_run(tmp_path, 2, 1, 12)
    for epoch in range(3):
        run.run_epochs(epoch, epoch)
        run.follow()
    assert caplog.text.count("takes no more") == 2, "once for each host"
    assert run.cluster.told[-1].unprotected, "nobody has a copy"
    run.run_epochs(3)
    assert exact(run.output) == exact(totals_stream().run_sequential())
