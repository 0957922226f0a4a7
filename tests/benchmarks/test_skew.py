"""The parts of the skew benchmark that need no JVM: its input, and the truth it compares with."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.partitioning.placing.construct import evened
from benchmarks.skew import (
    Setting,
    median_names,
    sequential_totals,
    slowdown,
    two_classes,
    uniform,
    write_epochs,
    zipf,
)


def test_the_truth_is_a_running_total_per_key(tmp_path):
    setting = Setting(rows=400, settling=1, measured=2)
    names = np.random.default_rng(0).permutation(50)
    write_epochs(tmp_path / "source", names, zipf(50), setting, seed=3)
    found = sequential_totals(tmp_path / "source").to_pylist()
    totals: dict = {}
    rows = pq.read_table(sorted((tmp_path / "source").glob("*.parquet"))).to_pylist()
    assert len(rows) == len(found) == 1200
    for row, output in zip(rows, found, strict=True):
        totals[row["key"]] = totals.get(row["key"], 0) + row["value"]
        assert output == {"key": row["key"], "value": row["value"], "total": totals[row["key"]]}


@pytest.mark.parametrize("percent", [78, 25, 1])
def test_so_many_percent_of_the_keys_have_eighty_percent_of_the_rows(percent):
    shares = two_classes(1000, percent)
    assert shares.sum() == pytest.approx(1) and shares[: 10 * percent].sum() == pytest.approx(0.8)


def test_the_draw_is_neither_lucky_nor_unlucky_for_consistent_hashing():
    shares, function = zipf(2000), evened(8)
    chosen = slowdown(function, median_names(shares, function, 1), shares)
    drawn = [slowdown(function, np.random.default_rng(n).permutation(2000), shares) for n in range(100, 121)]
    assert min(drawn) < chosen < max(drawn)


def test_uniform_hashing_is_the_hash_modulo_the_number_of_channels():
    from anabranch.program.hashing import hash_columns

    names = np.arange(500)
    hashes = hash_columns([pa.array(names)])
    assert (uniform(names, 8).route(hashes) == (hashes % np.uint64(8)).astype(int)).all()
