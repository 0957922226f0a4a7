"""Timing single tuples: seconds go to the tuple they were spent for, and nothing else changes."""

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.worker import measuring
from anabranch.engine.worker.timing import Stopwatch
from anabranch.partitioning.counting.key_costs import ChannelTimes
from anabranch.program.hashing import hash_columns
from anabranch.testing import ParallelRun
from tests.engine import pretended_time
from tests.programs import exact


class Clock:
    """Passes when an operator sleeps, and nobody waits."""

    now_s = 0.0

    def sleep(self, seconds):
        self.now_s += seconds


@ab.model(state="partitioned", key="k")
class Slow(ab.Operator):
    """Takes as many milliseconds as its key says."""

    seen: list = ab.state(factory=list)

    def process(self, t):
        pretended_time.sleep(t.k / 1000)
        self.seen.append(t.x)
        yield (t.k, len(self.seen))
        pretended_time.sleep(t.k / 1000)
        yield (t.k, -len(self.seen))


@ab.model(state="stateless", selectivity="1:1", forwards="*")
def slow_again(t):
    pretended_time.sleep(0.5)
    return t


@ab.model(state="stateless")
def slowly(one, other):
    pretended_time.sleep(one.k)
    return (one.k, one.x)


def reports(stream, monkeypatch, tmp_path, channels=3):
    """What channels reported about their keys, over all epochs: hash → (calls, seconds, bytes)."""
    found: dict = {}

    def of_report(report, rows, busy):
        read = original(report, rows, busy)
        if read is not None:
            for at, key in enumerate(read.hashes.tolist()):
                found.setdefault(key, []).append((read.calls[at], read.spent[at], read.bytes[at]))
        return read

    original = ChannelTimes.of_report
    monkeypatch.setattr(ChannelTimes, "of_report", staticmethod(of_report))
    clock = Clock()
    monkeypatch.setattr(measuring, "Stopwatch", lambda _: Stopwatch(lambda: clock.now_s))
    run = ParallelRun(stream, str(tmp_path), channels=channels)
    # Only now: the compiler reads what operators call. And only here: other threads sleep too, and would spin.
    monkeypatch.setattr(pretended_time, "sleep", clock.sleep)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    assert not any("measured" in stage for progress in run.progress for stage in progress.to_dict()["stages"])
    return found


def hash_of(key):
    return int(hash_columns([pa.array([key])])[0])


def rows(epochs):
    random = np.random.default_rng(3)
    return [[(int(random.integers(1, 6)), float(n)) for n in range(200)] for _ in range(epochs)]


def test_all_steps_that_a_tuple_goes_through_count_for_its_key(monkeypatch, tmp_path):
    stream = from_epochs(rows(2), "k long, x double").process(Slow(), by="k", schema="k long, n long")
    stream = stream.map(slow_again, schema="k long, n long")
    found = reports(stream, monkeypatch, tmp_path)
    assert set(found) == {hash_of(key) for key in range(1, 6)}
    for key in range(1, 6):
        for calls, seconds, size in found[hash_of(key)]:
            # Two outputs for each tuple, each of which is half a second slower behind.
            np.testing.assert_allclose(seconds / calls, 2 * key / 1000 + 1.0)
            assert size > 8


def test_calls_with_several_inputs_are_timed_too(monkeypatch, tmp_path):
    stream = from_epochs(rows(1), "k long, x double")
    joined = stream.join(stream, by="k", window=ab.count(2), function=slowly, schema="k long, x double")
    found = reports(joined, monkeypatch, tmp_path)
    costs = {
        key: sum(s for _, s, _ in found[hash_of(key)]) / sum(c for c, _, _ in found[hash_of(key)]) for key in (1, 5)
    }
    assert 3 < costs[5] / costs[1] < 7


def test_few_tuples_are_timed_where_calls_are_short(monkeypatch, tmp_path):
    class Short(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):
            self.seen += 1
            yield (t.k, self.seen)

    data = [[(n % 3, float(n)) for n in range(6400)]]
    stream = from_epochs(data, "k long, x double").process(Short(), by="k", schema="k long, n long")
    found = reports(stream, monkeypatch, tmp_path, channels=1)
    assert sum(calls for each in found.values() for calls, _, _ in each) == 100 - 3  # without the longest of each
