"""Whole programs whose partitioning functions are replaced between epochs: the output is that of one thread."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.api.session import from_epochs
from anabranch.papers.streaming.migration import Holdings, moved_keys
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import resized
from anabranch.program.hashing import hash_columns
from anabranch.sim.owners import check_checkpoint
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact

KEYS = 9
HASHES = hash_columns([pa.array(range(KEYS))]).tolist()


def functions_for(random: np.random.Generator) -> PartitioningFunction:
    channels = int(random.integers(1, 6))
    weights = [*random.integers(0, 30, channels - 1).tolist(), 5]
    hot = random.choice(KEYS, int(random.integers(0, 4)), replace=False)
    return PartitioningFunction(tuple(weights)).with_hot(
        {HASHES[key]: int(random.integers(channels)) for key in hot.tolist()}
    )


def routed_by(operator: str, hashed: int, key) -> int:
    """The hash of `k`, which is the first part of a finer key."""
    return HASHES[key[0]] if isinstance(key, tuple) else hashed


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_replacing_the_functions_of_regions_between_epochs_changes_no_output(seed):
    random = np.random.default_rng(seed)
    epochs = [
        [(int(random.integers(KEYS)), "ab"[int(random.integers(2))], float(random.integers(5))) for _ in range(20)]
        for _ in range(8)
    ]
    stream = build(from_epochs(epochs, COLUMNS), ["running", "jump by both"])
    with tempfile.TemporaryDirectory(prefix="anabranch-test-") as path:
        written: dict = {}
        run = ParallelRun(stream, path, channels=2, seed=seed % 100, written=written)
        for epoch in range(len(epochs)):
            if random.random() < 0.2:  # a driver that dies: the next one begins with what the manifest says
                run = ParallelRun(stream, path, channels=2, seed=seed % 100, written=written)
            for region in run.runner.functions:
                if random.random() < 0.6:
                    run.runner._owners = run.runner._owners.replaced(region, functions_for(random))
            run.run_epochs(epoch, epoch)
        assert exact(run.output) == exact(stream.run_sequential())
        assert check_checkpoint(Path(path), routed_by) > 0


def test_the_keys_a_replacement_moves_are_counted_from_the_checkpoint(tmp_path):
    epochs = [[(k, "a", 1.0) for k in range(3000)]]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    run = ParallelRun(stream, str(tmp_path), channels=2)
    run.run_epochs()
    reader = CheckpointReader(LocalFiles(str(tmp_path / "anabranch")))
    hashes = reader.route_hashes("Running")
    assert len(hashes) == 3000
    (region,) = run.runner.functions
    before = run.runner.functions[region]
    after = resized(before, 3)
    moved = moved_keys(before, after, Holdings.of(hashes, before, after))
    assert moved.moved == int((before.route(hashes) != after.route(hashes)).sum())
    assert moved.keys == 3000 and 0.9 < moved.against_minimum < 1.1
