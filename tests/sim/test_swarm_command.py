"""The command that both swarms share: which worlds it runs, what it says, when it stops."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from anabranch.sim.swarm_command import WORLDS_PER_SEED, SwarmCommand


@dataclass(frozen=True)
class Number:
    value: int
    extra: int = 3


def too_large(world: Number) -> list[str]:
    return [f"size: {world.value} is too large"] if world.value % WORLDS_PER_SEED >= 4 else []


def smaller(world: Number):
    if world.extra:
        yield Number(world.value, world.extra - 1)
    yield Number(world.value - 1, world.extra)


COMMAND = SwarmCommand("some.swarm", Number, too_large, smaller)


def test_what_fails_is_counted_made_small_and_printed(capsys):
    assert COMMAND.run(["--seed", "2", "--failures", "2"]) == 1
    said = capsys.readouterr().out
    assert "world 2000004 fails (again: python -m some.swarm --world 2000004)" in said
    assert "world 2000005 fails" in said and "2000006" not in said
    assert "world = Number(value=2000004, extra=0)" in said
    assert "6 worlds in" in said and "2 failed\nviolated: size in 2\n" in said


def test_one_world_can_be_run_alone(capsys):
    assert COMMAND.run(["--world", "3"]) == 0
    assert COMMAND.run(["--world", "9"]) == 1
    assert "1 worlds in" in capsys.readouterr().out


def test_it_ends_when_its_time_is_over(capsys):
    never_wrong = SwarmCommand("some.swarm", Number, lambda world: [], smaller)
    assert never_wrong.run(["--seconds", "0.01"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("0 failed")


@pytest.mark.parametrize("module", ["anabranch.sim.swarm", "anabranch.papers.machine.swarm"])
def test_both_swarms_have_it(module):
    done = subprocess.run([sys.executable, "-m", module, "--world", "7"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 worlds in")
    assert done.stdout.rstrip().endswith("0 failed")
