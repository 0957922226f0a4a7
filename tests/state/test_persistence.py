"""State that expires, state that is not kept, maps, and checkpoints that were damaged."""

import datetime
import os
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import CheckpointError, ProgramError, StateError
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun, run_parallel
from tests.programs import COLUMNS, build, exact


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)


class Names(ab.Operator):
    """All of the state API."""

    last = ab.store(ttl=datetime.timedelta(seconds=10))
    more = ab.stores()

    def process(self, t):
        before = self.last.get(t.s, "none")
        self.last.put(t.s, t.x)
        if t.x == 1.0 and "ones" not in self.more:
            self.more.create("ones", ttl=5)
        if "ones" in self.more:
            self.more["ones"].put(t.s, len(self.last))
            if t.x == 4.0:
                self.more.remove("ones")
        if t.x == 3.0:
            self.last.remove(t.s)
        yield (t.k, f"{before} {list(self.last)} {self.more.names()}")


def at_times(stream, epochs, times, **options):
    """The parallel and the sequential output when each epoch has a time of its own, in seconds."""
    parallel = run_parallel(stream, clocks_ms=[time * 1000 for time in times], **options)
    sequential = SequentialRun(stream._node)
    for time, rows in zip(times, epochs, strict=True):
        sequential.clock_ms = time * 1000
        sequential.feed(rows)
    return exact(parallel), exact(sequential.output)


def test_the_state_of_a_key_expires_after_its_time_to_live():
    epochs = [[(1, "a", 0.0), (2, "a", 0.0)], [(1, "a", 0.0)], [(1, "a", 0.0), (2, "a", 0.0)], [(1, "a", 0.0)]]
    stream = from_epochs(epochs, COLUMNS).process(Count(), by="k", schema="k long, n long", ttl=60)
    parallel, sequential = at_times(stream, epochs, [100, 150, 170, 231])
    assert parallel == sequential
    assert sequential[-3:] == ["(k=1, n=3)", "(k=2, n=1)", "(k=1, n=1)"]


def test_expired_keys_leave_the_checkpoint_when_segments_are_merged(tmp_path):
    epochs = [[(n, "a", 0.0)] for n in range(12)]
    stream = from_epochs(epochs, COLUMNS).process(Count(), by="k", schema="k long, n long", ttl=3, name="count")
    clocks_ms = [second * 1000 for second in range(100, 112)]
    ParallelRun(stream, str(tmp_path), channels=1, clocks_ms=clocks_ms).run_epochs()
    (summary,) = CheckpointReader(LocalFiles(str(tmp_path / "anabranch"))).stores()
    assert summary.keys < 8


def test_maps_keep_expire_and_forget_entries():
    epochs = [[(k, s, float((n + k) % 6)) for k in range(3) for s in "ab"] for n in range(9)]
    stream = from_epochs(epochs, COLUMNS).process(Names(), by="k", schema="k long, s string")
    parallel, sequential = at_times(stream, epochs, [100, 101, 106, 111, 112, 130, 131, 132, 141], channels=2)
    assert parallel == sequential
    assert any("['ones']" in row for row in sequential) and any("none [" in row for row in sequential[6:])


def test_transient_state_lasts_between_epochs_and_begins_anew_after_a_restart(tmp_path):
    epochs = [[(1, "a", 0.0)]] * 3
    stream = from_epochs(epochs, COLUMNS).process(Count(), by="k", schema="k long, n long", persistence="transient")
    first = ParallelRun(stream, str(tmp_path))
    first.run_epochs(last=1)
    second = ParallelRun(stream, str(tmp_path))
    second.run_epochs()
    assert exact(first.output) == ["(k=1, n=1)", "(k=1, n=2)"]
    assert exact(second.output) == ["(k=1, n=1)"]
    assert not list((tmp_path / "anabranch").glob("state/*/*"))


class Shares(ab.Operator):
    one = ab.state(factory=list)
    other = ab.state(factory=dict)

    def process(self, t):
        self.one.append(t.s)
        held = self.other.setdefault("same", [self.one])
        yield (t.k, len(self.one), len(held[0]))


def test_one_object_in_two_places_of_the_state_stays_one(tmp_path):
    rows = [(1, "a", 0.0), (1, "b", 0.0), (1, "c", 0.0)]
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=1).process(Shares(), by="k", schema="k long, n long, m long")
    run = ParallelRun(stream, str(tmp_path))
    run.run_epochs(last=1)
    again = ParallelRun(stream, str(tmp_path))
    again.run_epochs()
    assert exact([*run.output, *again.output]) == exact(stream.run_sequential())


def test_wrong_persistence_and_time_to_live_are_errors():
    stream = ab.from_rows([], COLUMNS)
    with pytest.raises(ProgramError, match="transient"):
        stream.process(Count(), by="k", schema="k long, n long", persistence="never")
    with pytest.raises(ProgramError, match="positive"):
        stream.process(Count(), by="k", schema="k long, n long", ttl=-1)


def test_a_store_that_is_made_twice_or_is_not_there_is_an_error():
    from anabranch.state.maps import StateMaps

    maps = StateMaps()
    maps.create("a")
    with pytest.raises(StateError, match="already"):
        maps.create("a")
    with pytest.raises(StateError, match="no store 'b'; stores: a"):
        maps.remove("b")


# -- damage ----------------------------------------------------------------------------------------------


def long_run(checkpoint: Path, epochs: int = 9) -> ab.Stream:
    rows = [[(k, "a", float(n)) for k in range(n % 4 + 3)] for n in range(epochs + 1)]
    stream = build(from_epochs(rows, COLUMNS), ["running"])
    ParallelRun(stream, str(checkpoint), channels=1).run_epochs(last=epochs - 1)
    return stream


def records(checkpoint: Path) -> list[dict]:
    return CheckpointReader(LocalFiles(str(checkpoint / "anabranch"))).manifest.segments["Running"]


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "truncated":
        del data[len(data) // 2 :]
    elif how == "bit-flipped":
        data[len(data) // 2] ^= 0x10
    path.unlink()
    if how != "missing":
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["truncated", "bit-flipped", "missing"])
def test_a_damaged_merge_is_replaced_by_what_it_was_made_of(tmp_path, how):
    stream = long_run(tmp_path)
    merged = next(record for record in records(tmp_path) if record.parts)
    damage(tmp_path / "anabranch/state" / merged.name, how)
    run = ParallelRun(stream, str(tmp_path), channels=1)
    run.run_epochs()
    expected = stream.run_sequential()
    assert exact(run.output) == exact(expected)[-len(run.output) :]
    assert merged.name not in {record.name for record in records(tmp_path)}


@pytest.mark.parametrize("how", ["truncated", "bit-flipped", "missing"])
def test_a_damaged_changelog_is_refused_with_its_name(tmp_path, how):
    stream = long_run(tmp_path)
    newest = max(records(tmp_path), key=lambda record: record.last)
    if newest.parts:  # damage the merge and all it was made of
        for part in newest.parts:
            damage(tmp_path / "anabranch/state" / part.name, how)
    damage(tmp_path / "anabranch/state" / newest.name, how)
    before = sorted(os.listdir(tmp_path / "anabranch/epochs"))
    with pytest.raises(CheckpointError, match=r"segment.*Restore the file"):
        ParallelRun(stream, str(tmp_path), channels=1).run_epochs()
    assert sorted(p for p in os.listdir(tmp_path / "anabranch/epochs") if p.endswith("json")) == [
        p for p in before if p.endswith("json")
    ]


def test_a_damaged_manifest_makes_its_epoch_run_again(tmp_path):
    stream = long_run(tmp_path)
    damage(tmp_path / "anabranch/epochs/000000000008.json", "bit-flipped")
    run = ParallelRun(stream, str(tmp_path), channels=1)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())[-len(run.output) :]
    assert [progress.epoch for progress in run.progress if not progress.skipped] == [8, 9]


def test_a_full_disk_fails_the_epoch_and_the_next_start_goes_on(tmp_path, monkeypatch):
    stream = long_run(tmp_path)
    write = LocalFiles.write

    def full(self, name, data, modified=None):
        if name.endswith(".segment"):
            raise OSError(28, "No space left on device")
        write(self, name, data)

    monkeypatch.setattr(LocalFiles, "write", full)
    with pytest.raises(CheckpointError, match=r"No space left.*nothing of it was committed"):
        ParallelRun(stream, str(tmp_path), channels=1).run_epochs()
    monkeypatch.undo()
    run = ParallelRun(stream, str(tmp_path), channels=1)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())[-len(run.output) :]


def test_old_segments_and_manifests_are_removed(tmp_path):
    long_run(tmp_path, epochs=60)
    manifests = [name for name in os.listdir(tmp_path / "anabranch/epochs") if name.endswith(".json")]
    files = list((tmp_path / "anabranch/state").rglob("*.segment"))
    assert len(manifests) == 10
    assert len(files) < 40  # 60 changelogs and some 20 merges were written
    assert not list((tmp_path / "anabranch").rglob("*.tmp"))


def test_leftovers_of_a_crash_are_removed_at_the_next_start(tmp_path):
    stream = long_run(tmp_path)
    old = tmp_path / "anabranch/state/Running/000000000003-00000-abcdefabcdef.segment"
    young = tmp_path / "anabranch/state/Running/000000000009-00000-abcdefabcdef.segment"
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    ParallelRun(stream, str(tmp_path), channels=1)
    assert not old.exists() and young.exists()  # a task of the killed driver may still be writing the young one


# -- changed programs ------------------------------------------------------------------------------------


class Counted(ab.Operator):
    """`Count` with one more state field."""

    seen: int = ab.state(default=0)
    weight: float = ab.state(default=0.5)

    def process(self, t):
        self.seen += 1
        self.weight += 1.0
        yield (t.k, self.seen)


def counting(epochs, operator=None, by="k") -> ab.Stream:
    return from_epochs(epochs, COLUMNS).process(operator or Count(), by=by, schema="k long, n long", name="count")


def test_state_fields_that_are_new_begin_with_their_default(tmp_path):
    epochs = [[(1, "a", 0.0)], [(1, "a", 0.0)]]
    ParallelRun(counting(epochs[:1]), str(tmp_path)).run_epochs()
    run = ParallelRun(counting(epochs, Counted()), str(tmp_path))
    run.run_epochs()
    assert exact(run.output) == ["(k=1, n=2)"]
    assert any("now has weight" in change for change in run.changes)
    assert CheckpointReader(LocalFiles(str(tmp_path / "anabranch"))).value("count", 1) == {"seen": 2, "weight": 1.5}


def test_state_that_would_be_lost_is_refused_unless_allowed(tmp_path):
    epochs = [[(1, "a", 0.0)], [(1, "a", 0.0)]]
    ParallelRun(counting(epochs[:1], Counted()), str(tmp_path)).run_epochs()
    with pytest.raises(CheckpointError, match="no longer has weight"):
        ParallelRun(counting(epochs), str(tmp_path))
    run = ParallelRun(counting(epochs), str(tmp_path), allow_state_loss=True)
    run.run_epochs()
    assert exact(run.output) == ["(k=1, n=2)"]


def test_another_key_is_refused(tmp_path):
    epochs = [[(1, "a", 0.0)], [(1, "a", 0.0)]]
    ParallelRun(counting(epochs[:1]), str(tmp_path)).run_epochs()
    with pytest.raises(CheckpointError, match=r"operator count: its key was \['k'\] and is now \['s'\]"):
        ParallelRun(counting(epochs, by="s"), str(tmp_path), allow_state_loss=True)


def test_an_operator_without_state_may_be_added(tmp_path):
    epochs = [[(1, "a", 0.0)], [(1, "a", 0.0)]]
    ParallelRun(counting(epochs[:1]), str(tmp_path)).run_epochs()
    stream = counting(epochs).filter(lambda t: t.n > 1)
    run = ParallelRun(stream, str(tmp_path))
    run.run_epochs()
    assert exact(run.output) == ["(k=1, n=2)"] and any("filter" in change for change in run.changes)


def test_nan_in_a_key_of_several_columns_is_one_key_after_it_was_stored(tmp_path):
    import anabranch as ab
    from anabranch.api.session import from_epochs
    from anabranch.testing import ParallelRun

    nan = float("nan")
    stream = from_epochs([[("a", nan)], [("a", nan)], [("a", nan)]], "k string, f double")
    counted = stream.aggregate(by=["k", "f"], window=ab.tumbling(3), number=ab.agg.count())
    run = ParallelRun(counted, str(tmp_path), channels=2)
    run.run_epochs()
    assert [row.number for row in run.output] == [3]
    stream = from_epochs([[("a", nan)], [], [("b", 1.0)], []], "k string, f double")
    timed = stream.aggregate(by=["k", "f"], window=ab.time(1), number=ab.agg.count())
    run = ParallelRun(timed, str(tmp_path / "timed"), channels=2, clocks_ms=[0, 10, 20, 5000])
    run.run_epochs()
    assert [(row.k, row.number) for row in run.output] == [("a", 1), ("b", 1)]
