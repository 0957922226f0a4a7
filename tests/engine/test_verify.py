"""Keys that are run again on one thread: wrong verdicts are found, right ones never doubted."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.cli import main
from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.engine.worker.sampling import Sampling
from anabranch.errors import ProgramError, VerifyError
from anabranch.program.hashing import hash_columns
from anabranch.testing import ParallelRun, replay, run_sequential
from tests.engine.planted_verdicts import COUNTED, DECLARED, PLANTED, STATELESS, source, switch_proof_off
from tests.event_time.test_timers import built
from tests.event_time.test_timers import steps as timed_steps
from tests.event_time.test_watermarks import source as timed_source
from tests.event_time.timed_programs import cuts
from tests.event_time.timed_programs import rows as timed_rows
from tests.graphs import build as build_graph
from tests.graphs import cases, clocks
from tests.programs import COLUMNS, build, epochs, exact, programs

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
PROGRAMS = int(os.environ.get("ANABRANCH_PROGRAMS", "25"))


@pytest.mark.parametrize("fresh", [False, True], ids=["tasks in one process", "every task in a new one"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PLANTED)
def test_every_wrong_verdict_is_found(name, channels, fresh, monkeypatch, tmp_path):
    verdict, make, _ = PLANTED[name]
    switch_proof_off(monkeypatch, verdict)
    run = ParallelRun(make(), str(tmp_path), channels=channels, fresh_tasks=fresh, verify=1.0, watch="off")
    with pytest.raises(VerifyError) as caught:
        run.run_epochs()
    assert not run.output or run.progress, "nothing of the epoch is written"
    with open(caught.value.file, "rb") as file:
        record = DifferenceRecord.from_json(file.read())
    assert record.title in str(caught.value) and record.epoch == len(run.progress)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_verdicts_are_wrong(name, monkeypatch, tmp_path):
    """Without verify they give other output than one thread, or would leave something behind that decides it."""
    verdict, make, repeatable = PLANTED[name]
    switch_proof_off(monkeypatch, verdict)
    run = ParallelRun(make(), str(tmp_path), channels=3, watch="off")
    run.run_epochs()
    is_hidden = name == "an entry that only counts"  # what is kept is wrong, the output not yet
    assert exact(run.output) != exact(make().run_sequential()) or not repeatable or is_hidden


@settings(max_examples=PROGRAMS, deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), channels=st.integers(1, 6), seed=st.integers(0, 10**6), times=clocks)
def test_no_graph_gives_a_false_alarm(tmp_path_factory, case, channels, seed, times):
    streams = build_graph(*case)
    try:
        directory = str(tmp_path_factory.mktemp("checkpoint"))
        run = ParallelRun(streams, directory, channels=channels, seed=seed, clocks_ms=times, verify=1.0)
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        assume("no source" not in str(problem) and "still fed back" not in str(problem))
        raise
    run.run_epochs()
    assert [exact(each) for each in run.outputs] == [exact(each) for each in expected]
    assert all(each.verify is not None and not each.verify.differences for each in run.progress)


@settings(max_examples=PROGRAMS, deadline=None)
@given(epochs=epochs, steps=programs, channels=st.integers(1, 8), chance=st.sampled_from([0.2, 1.0]))
def test_no_chain_gives_a_false_alarm(tmp_path_factory, epochs, steps, channels, chance):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    run = ParallelRun(stream, str(tmp_path_factory.mktemp("checkpoint")), channels=channels, verify=chance)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())


class Memo(ab.Operator):
    """Keeps what it need not compute again, for all keys: nothing depends on that."""

    n: int = ab.state(default=0)
    known = {}  # noqa: RUF012 - of the class, on purpose

    def process(self, t):
        self.n += self.known.setdefault(t.x, t.x * t.x)
        yield t.k, self.n


def test_what_is_kept_elsewhere_and_decides_nothing_is_no_difference(monkeypatch, tmp_path):
    model = {}

    def lazily(t):
        model.setdefault("weights", [1, 2, 3])
        return t.k, model["weights"][t.x % 3]

    for number, make in enumerate((lambda: source().map(lazily, COUNTED), lambda: memo())):
        switch_proof_off(monkeypatch, STATELESS)
        run = ParallelRun(make(), str(tmp_path / str(number)), channels=3, verify=1.0)
        run.run_epochs()
        assert exact(run.output) == exact(make().run_sequential())


def memo():
    return source().process(Memo(), by="k", schema=COUNTED)


def test_a_sample_is_the_same_for_every_attempt_and_as_large_as_was_asked_for():
    hashes = hash_columns([pa.array(range(20_000))])
    taken = 0
    for epoch in range(200):
        sampling = Sampling.of_epoch(epoch, 0.04)
        if sampling is not None:
            mask = sampling.takes(hashes)
            assert (mask == Sampling.of_epoch(epoch, 0.04).takes(hashes)).all()
            taken += int(mask.sum())
    assert taken / (200 * 20_000) == pytest.approx(0.04, rel=0.1)
    assert Sampling.of_epoch(3, 0.0) is None and Sampling.of_epoch(0, 0.0001) is not None


def test_a_difference_may_be_reported_only_and_is_run_again_by_hand(monkeypatch, tmp_path, capsys):
    verdict, make, _ = PLANTED["an entry for all"]
    switch_proof_off(monkeypatch, verdict)
    run = ParallelRun(make(), str(tmp_path), channels=3, verify=1.0, verify_action="report", watch="off")
    run.run_epochs()
    assert len(run.output) == 90 and [each.verify.differences for each in run.progress] == [1, 1, 1]
    (file,) = run.progress[1].verify.files
    found = replay(make(), file)
    assert found is not None and found.kind == "output"
    record = DifferenceRecord.from_json(Path(file).read_bytes())
    assert record.epoch == 1 and record.state_before and record.key == repr(found.key)
    assert main(["difference", file]) == 0 and record.text() in capsys.readouterr().out
    assert main(["difference", str(tmp_path)]) == 2
    (tmp_path / "other.json").write_text("[]")
    assert main(["difference", str(tmp_path / "other.json")]) == 2

    class Mended:
        def __init__(self):
            self.d = {}

        def __call__(self, t):
            self.d[t.k] = self.d.get(t.k, 0) + 1
            yield t.k, 1

    mended = source().process(Mended(), schema=COUNTED, name=record.operator)
    assert replay(mended, file) != found, "another operator does something else"


def test_windows_time_feedback_and_hot_keys_in_parts_are_run_again(tmp_path):
    rows = [(n, "ab"[n % 7 == 0], float(n % 5)) for n in range(200)]
    stream = ab.from_rows(rows, "n long, k string, x double", rows_per_epoch=50)
    windows = stream.aggregate(by="k", window=ab.time(1.5), total=ab.agg.sum("n"))
    last = stream.process(Last(), by="k", ttl=2, schema="n long, k string, x double", name="last")
    run = ParallelRun([windows, last], str(tmp_path), split_hot_keys=True, clocks_ms=[0, 1000, 4000, 4500], verify=1.0)
    run.run_epochs()
    assert [exact(each) for each in run.outputs] == [
        exact(each) for each in run_sequential([windows, last], clocks_ms=[0, 1000, 4000, 4500])
    ]
    assert all(each.verify.tuples >= 100 for each in run.progress)
    assert any("deals" in why for why in run.progress[0].verify.not_covered.values())


class Last(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1
        yield self.n, t.k, t.x


class ByRemainder:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.x % 3] = self.counts.get(t.x % 3, 0) + len(t)
        yield t.k, self.counts[t.x % 3]


def test_a_computed_key_is_run_again_with_tuples_as_they_were_written(tmp_path):
    stream = source().process(ByRemainder(), schema=COUNTED)
    run = ParallelRun(stream, str(tmp_path), channels=3, verify=1.0)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    assert all(each.verify.keys == 3 for each in run.progress)


@settings(max_examples=max(5, PROGRAMS // 2), deadline=None)
@given(data=st.data(), before=timed_steps, after=timed_steps, channels=st.integers(1, 6))
def test_no_program_in_event_time_gives_a_false_alarm(tmp_path_factory, data, before, after, channels):
    epochs = data.draw(cuts(data.draw(timed_rows())))
    stream = built(timed_source(epochs, lateness=1, every=3), [*before, "silence", *after])
    run = ParallelRun(stream, str(tmp_path_factory.mktemp("checkpoint")), channels=channels, verify=1.0)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())


class Calls(ab.Operator):
    """Counts the timers of all keys, where no key keeps it."""

    due: int = ab.state(default=0)
    calls = 0

    def process(self, t):
        self.due += 1
        self.timers.at(t.at + 2)

    def on_timer(self, time):
        type(self).calls += 1
        yield type(self).calls, time, self.due


def test_what_timers_keep_elsewhere_is_found(monkeypatch, tmp_path):
    switch_proof_off(monkeypatch, DECLARED)
    epochs = [[(n % 5, n + 10 * epoch, 1) for n in range(10)] for epoch in range(3)]
    stream = timed_source(epochs).process(Calls(), by="k", schema="k long, at long, x long")
    with pytest.raises(VerifyError, match="time has come to"):
        ParallelRun(stream, str(tmp_path), channels=3, verify=1.0).run_epochs()
