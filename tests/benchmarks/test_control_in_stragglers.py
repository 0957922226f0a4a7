"""Stragglers in the simulator: an epoch that one slow task holds up says nothing of whether channels pay."""

import pytest

from benchmarks import _control_simulated as simulated


@pytest.mark.parametrize("seed", [71000, 71001])
def test_stragglers_do_not_keep_a_region_small(seed):
    """Two bad periods at eight channels sent these back to six, under a ceiling that lasted for the rest of the run."""
    ours, papers = (simulated.run("stragglers", policy, seed, 400.0) for policy in ("default", "paper"))
    assert ours.rows_in >= 0.9 * papers.rows_in
