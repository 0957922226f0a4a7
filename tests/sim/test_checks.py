"""The checkers can fail: a run that was right is doctored, and each of them complains."""

import copy
import dataclasses

import pytest

import anabranch as ab
from anabranch.sim import AskedChannels, Constant, Crash, Situation, checks
from anabranch.sim.ledger import Asked, Scaled
from anabranch.sim.simulation import Simulation


class Total(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        yield t.k, self.total


@pytest.fixture(scope="module")
def world():
    rows = [(at % 5, at) for at in range(120)]
    stream = ab.from_rows(rows, "k long, x long").process(Total(), by="k", schema="k long, x long", name="total")
    situation = Situation(
        load=Constant(40.0), rows_per_file=10, asked=(AskedChannels(3, 0, 3),), crashes=(Crash("sink written", 5),)
    )
    simulation = Simulation(stream, situation)
    simulation.run()
    return simulation


def doctored(world):
    return copy.deepcopy(world.ledger)


def complaints(world, ledger):
    run, by_epoch = checks.oracle(ledger, world.ends)
    found = checks.check_manifests(ledger, world.files, 10) + checks.check_once(ledger)
    found += checks.check_output(ledger, by_epoch) + checks.check_state(ledger, world.files, run, world.ends)
    found += checks.check_owners(ledger, world.files, lambda operator, hashed, key: hashed)
    return found + checks.check_bounds(ledger, 1, 4) + checks.check_asked(ledger, world.asked)


def test_a_run_that_is_right_is_left_alone(world):
    assert complaints(world, world.ledger) == []
    world.restarted()
    assert checks.check_leaks(world.ledger, world.files, 10) == []


def test_a_tuple_that_is_missing_twice_or_in_another_place_shows(world):
    for change in (lambda rows: rows[1:], lambda rows: (*rows, rows[-1]), lambda rows: (rows[1], rows[0], *rows[2:])):
        ledger = doctored(world)
        last = ledger.deliveries[-1]
        ledger.deliveries[-1] = dataclasses.replace(last, rows=change(last.rows))
        assert any(each.startswith("output:") for each in complaints(world, ledger))


def test_an_epoch_delivered_in_two_versions_shows(world):
    ledger = doctored(world)
    ledger.deliveries.insert(0, dataclasses.replace(ledger.deliveries[0], rows=("something else",)))
    assert any(each.startswith("once:") for each in checks.check_once(ledger))


def test_a_micro_batch_that_was_left_out_or_committed_twice_shows(world):
    ledger = doctored(world)
    del ledger.manifests[2]
    assert any(each.startswith("once:") for each in checks.check_once(ledger))
    assert any(each.startswith("once:") for each in checks.check_manifests(ledger, None))
    ledger = doctored(world)
    ledger.manifests.append(ledger.manifests[-1])
    assert any(each.startswith("once:") for each in checks.check_manifests(ledger, None))


def test_times_that_go_backwards_show(world):
    ledger = doctored(world)
    ledger.manifests[-1]["facts"]["clock_ms"] -= 10**6
    assert any(each.startswith("manifests: clock_ms") for each in checks.check_manifests(ledger, None))


def test_state_that_is_lost_shows(world):
    ledger = doctored(world)
    ledger.manifests[-1]["segments"]["total"] = []
    assert any(each.startswith("state:") for each in complaints(world, ledger))


def test_a_segment_of_another_channel_shows(world):
    ledger = doctored(world)
    for manifest in ledger.manifests:
        for record in manifest["segments"].get("total", ()):
            record["channel"] = (record["channel"] + 1) % 3
    assert any(each.startswith("owners:") for each in complaints(world, ledger))


def test_files_that_nobody_refers_to_show(world):
    name = "state/total/000000000001-00000-feed.segment"
    world.files.write(name, b"")
    assert checks.check_leaks(world.ledger, world.files, 10) == [
        f"leaks: {name} is named by none of the last 10 manifests"
    ]
    world.files.delete(name)


def test_channels_outside_the_bounds_and_wishes_that_were_forgotten_show(world):
    ledger = doctored(world)
    ledger.scaled.append(Scaled("total", 9, 7))
    assert checks.check_bounds(ledger, 1, 4)[0].startswith("bounds: total has 7 channels")
    assert checks.check_asked(ledger, [Asked("total", 1, 2)])[0].startswith("asked: total")
