"""What the options partitioning, policy and levels choose is what runs, and the output stays that of one thread."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.control import Bounds, Observation
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.errors import ProgramError
from anabranch.partitioning.placing.construct import Construction
from anabranch.partitioning.ring import REPLICAS_DEFAULT
from anabranch.testing import ParallelRun
from tests.programs import exact


class Counted(ab.Operator):
    """A running count per key."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)


def skewed(epochs: int, rows: int):
    shares = 1 / np.arange(1, 1001)
    chance = np.random.default_rng(7)
    drawn = [chance.choice(1000, rows, p=shares / shares.sum()).tolist() for _ in range(epochs)]
    return from_epochs([[(key,) for key in keys] for keys in drawn], "k long").process(
        Counted(), by="k", schema="k long, seen long"
    )


def built_by(tmp_path, chosen: str) -> ParallelRun:
    """A skewed stream over two channels, and then over six: a function is built for what was counted."""
    stream = skewed(epochs=3, rows=6000)
    run = ParallelRun(
        stream, str(tmp_path), channels=2, balancing=BalancingSettings.of_options({"partitioning": chosen})
    )
    run.run_epochs(0, 0)
    run.runner.rescale("Counted", 6)
    run.run_epochs(1, 2)
    assert exact(run.output) == exact(stream.run_sequential())
    return run


def rows_of_channels(run: ParallelRun) -> list[int]:
    return [task.rows_in for task in run.progress[-1].stages if task.kind == "channel"]


@pytest.mark.parametrize("chosen", [each.value for each in Construction])
def test_keys_are_placed_by_the_construction_that_was_chosen(tmp_path, chosen):
    run = built_by(tmp_path, chosen)
    function = run.runner.functions["Counted"]
    rows = rows_of_channels(run)
    busiest = max(rows) * 6 / sum(rows)
    # Only ours weighs the ring; only consistent hashing knows no frequent keys.
    assert (set(function.weights) == {REPLICAS_DEFAULT}) == (chosen != "weigh")
    assert (len(function.hot_hashes) == 0) == (chosen == "consistent")
    assert busiest < {"weigh": 1.15, "consistent": 2.0}.get(chosen, 1.45)


def test_two_constructions_place_keys_differently(tmp_path):
    functions = {
        chosen: built_by(tmp_path / chosen, chosen).runner.functions["Counted"]
        for chosen in ("weigh", "readj", "consistent")
    }
    assert len(set(functions.values())) == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"partitioning": "best"}, "partitioning='best': expected one of consistent, scan, redist, readj, weigh"),
        ({"partitioning": "scan", "balancing": "off"}, "no effect with balancing='off'"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(options, expected):
    with pytest.raises(ProgramError, match=expected):
        BalancingSettings.of_options(options)


# -- policies ----------------------------------------------------------------------------------------------


def decided_by(tmp_path, **options: str) -> list[tuple[str, int]]:
    """Whose decisions were made about a region that begins with 4 channels, with tuples that always stand ready."""
    stream = skewed(epochs=5, rows=40)
    said = {
        "maxchannels": "8",
        "initialchannels": "4",
        "adaptationperiod": "1 epochs",
        "epochtarget": "1 ms",
        **options,
    }
    run = ParallelRun(stream, str(tmp_path), channels=ElasticOptions.parse(said))
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    decisions = run.runner.decisions("Counted")
    return [(decision.controller, decision.channels) for decision in decisions]


@pytest.mark.parametrize(("levels", "above"), [("single", 5), ("paper", 6), ("doubling", 8)])
def test_the_papers_policy_walks_on_the_levels_that_were_chosen(tmp_path, levels, above):
    decisions = decided_by(tmp_path, policy="paper", levels=levels, congestionthreshold="0", changesensitivity="0")
    assert decisions[0] == ("paper", above)


def test_without_a_word_the_policy_is_ours(tmp_path):
    assert {name for name, _ in decided_by(tmp_path)} == {"default"}


def test_how_small_a_change_of_the_load_the_papers_policy_sees_is_the_users_choice():
    """Of 4 channels with 100 rows a second each; 40 more are no whole channel's, and more than a tenth of one's."""

    def sees_more(sensitivity: str) -> bool:
        said = {"policy": "paper", "levels": "single", "changesensitivity": sensitivity}
        policy = ElasticOptions.parse(said).make_policy(Bounds(1, 4))
        for period, throughput in enumerate([400.0, 440.0], start=1):
            proposal = policy.propose(Observation(period, 4, throughput, congestion=1.0, busy_share=1.0))
        return "more load" in proposal.reason

    assert sees_more("1") and not sees_more("0")
