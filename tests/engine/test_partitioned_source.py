"""Sources that are partitioned by key: no first shuffle, the same output and state; every key is checked."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, faults, tumbling
from anabranch.api.session import from_epochs
from anabranch.compiler.compile import compiled
from anabranch.engine.sequential import input_row
from anabranch.engine.worker.tasks import Program
from anabranch.errors import InputError, OperatorError, ProgramError
from anabranch.partitioning.source_partitions import source_function
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, Running, build, epochs, exact, programs

NAMES = ("k", "s", "x")
KINDS = (pa.int64(), pa.string(), pa.float64())


def owners(rows, by, partitions):
    """The partition of each row."""
    if not rows:
        return []
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KINDS, strict=True)]
    return ab.partitions_of(pa.table(columns, NAMES), by, partitions)


def by_partition(rows, by, partitions):
    """The rows, those of one partition together: as files that are written partitioned have them."""
    numbers = owners(rows, by, partitions)
    return [rows[at] for at in np.argsort(numbers, kind="stable")] if rows else []


class FilesRun(ParallelRun):
    """A run whose epochs are files of one partition each, read as one likes.

    `reading`: "partitions", a task for each partition (what the layout hopes for); "files", a task for each file;
    "any", files cut into splits, dealt to tasks at random. `breaks` leaves out the end of a file, so that it
    has rows that it should not have.
    """

    def __init__(self, stream, checkpoint, reading="partitions", breaks=None, **more):
        super().__init__(stream, checkpoint, **more)
        self.reading = reading
        self.breaks = breaks

    def _partitions(self, rows, random):
        (source,) = self._sources
        logic = source.logic
        given = list(rows.get(source.name, ()))
        numbers = owners([tuple(row) for row in given], logic.partitioned_by, logic.partitions)
        cuts = [at for at in range(1, len(given)) if numbers[at] != numbers[at - 1]]
        if self.breaks is not None and cuts:
            cuts.remove(cuts[self.breaks % len(cuts)])
        pieces = []
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(given)], strict=True)):
            tuples = [input_row(source, row, at) for at, row in enumerate(given[start:stop])]
            if tuples:
                pieces += [(number, numbers[start], each) for each in self._file(source, number, tuples, random)]
        tasks: dict[int, list[pa.RecordBatch]] = {}
        if self.reading == "any":
            pieces = [pieces[at] for at in random.permutation(len(pieces))]
        for file, owner, piece in pieces:
            task = {"partitions": owner, "files": file, "any": int(random.integers(3))}[self.reading]
            size = int(random.integers(1, len(piece) + 2))
            tasks.setdefault(task, []).extend(piece.slice(at, size) for at in range(0, len(piece), size))
        yield []  # a task may find nothing
        yield from tasks.values()

    def _file(self, source, number, tuples, random):
        cuts = [] if self.reading != "any" else sorted({int(random.integers(1, len(tuples) + 1)), len(tuples)})[:-1]
        for start, stop in zip([0, *cuts], [*cuts, len(tuples)], strict=True):
            part = tuples[start:stop]
            order = [(number, pa.int64()), (f"file-{number}", pa.string()), (start, pa.int64())]
            arrays = [*source.schema.arrays(list(zip(*part, strict=True)))]
            arrays += [pa.array([value] * len(part), kind) for value, kind in order]
            yield pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])


def source(epochs, by=("k",), partitions=3, **more):
    return from_epochs(epochs, COLUMNS, partitioned=(tuple(by), partitions), **more)


def spared(run):
    """The stages that run where the source is read."""
    return [stage.name for stage in run.runner.program.layout.stages if stage.local]


# -- the same output ---------------------------------------------------------------------------------------------


@settings(max_examples=int(os.environ.get("ANABRANCH_PROGRAMS", "60")), print_blob=True, deadline=None)
@given(
    epochs=epochs,
    steps=programs,
    by=st.sampled_from([("k",), ("s",), ("k", "s"), ("s", "k")]),
    partitions=st.integers(1, 6),
    reading=st.sampled_from(["partitions", "partitions", "files", "any"]),
    is_sorted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_any_program_gives_the_sequential_output(
    tmp_path_factory, epochs, steps, by, partitions, reading, is_sorted, seed
):
    if is_sorted:
        epochs = [by_partition(rows, by, partitions) for rows in epochs]
    stream = build(source(epochs, by, partitions), steps)
    run = FilesRun(stream, str(tmp_path_factory.mktemp("c")), reading, seed=seed, channels=1 + seed % 4)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    if reading == "partitions":
        assert not any(each.shuffled for each in run.progress)


@settings(max_examples=20, deadline=None)
@given(
    epochs=st.lists(
        st.lists(st.tuples(*[st.integers(0, 9), st.just("a"), st.just(1.0)]), max_size=25), min_size=2, max_size=5
    ),
    counts=st.lists(st.sampled_from([0, 1, 2, 3, 5]), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_restarts_with_other_partitions_or_none_take_the_state_along(tmp_path_factory, epochs, counts, seed):
    """0 partitions: the program without partitioned_by, with channels that are rescaled."""
    counts = (counts * len(epochs))[: len(epochs)]
    epochs = [by_partition(rows, ("k",), count or 1) for rows, count in zip(epochs, counts, strict=True)]
    checkpoint, written = str(tmp_path_factory.mktemp("c")), {}
    for number, count in enumerate(counts):
        made = source(epochs, ("k",), count) if count else from_epochs(epochs, COLUMNS)
        stream = build(made, ["running", "history"])
        kind = FilesRun if count else ParallelRun
        run = kind(stream, checkpoint, seed=seed, written=written, channels=1 + seed % 3)
        run.run_epochs(last=number)
        if count:
            assert run.runner.functions["Running"] == source_function(count)
    assert exact(run.output) == exact(stream.run_sequential())


@pytest.mark.parametrize(
    "point", ["epoch begun", "segment written", "job done", "sink written", "commit checked", "manifest written"]
)
@pytest.mark.parametrize("reading", ["partitions", "files"])
def test_a_crash_at_any_point_changes_nothing(tmp_path, point, reading):
    rows = [[(n % 7, "a", float(n + e)) for n in range(20)] for e in range(3)]
    stream = build(source([by_partition(each, ("k",), 3) for each in rows]), ["running", "jump by both"])
    written: dict = {}
    left = [2]

    def die(reached, facts):
        if reached == point and facts["epoch"] == 1 and left[0]:
            left[0] -= 1
            raise KeyboardInterrupt

    faults.install(die)
    try:
        for _ in range(3):
            run = FilesRun(stream, str(tmp_path), reading, written=written)
            try:
                run.run_epochs()
                break
            except KeyboardInterrupt:
                continue
    finally:
        faults.install(None)
    assert left[0] < 2 and exact(run.output) == exact(stream.run_sequential())


# -- which stages ------------------------------------------------------------------------------------------------


def layout(stream):
    return compiled([stream._node]).layout


def test_what_runs_without_a_shuffle():
    found = layout(build(source([[]]), ["running"]))
    assert found.depth == 0 and [(stage.name, stage.depth, stage.local) for stage in found.stages] == [
        ("source", 0, False),
        ("Running", 0, True),
    ]
    renamed = source([[]]).filter(lambda t: t.x != 1).map(lambda t: (t.s, t.k), schema="s string, key long")
    local = renamed.process(Counted(), by=["s", "key"], schema="s string, n long", name="counted")
    assert [(each.local, dict(each.routes)) for each in layout(local).stages][1] == (True, {"counted": ("key",)})
    both = source([[]]).aggregate(by=["s", "k"], window=tumbling(2), total=agg.sum("x"), name="sums")
    assert layout(both).stages[1].local


class Counted(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.s, self.seen)


@ab.model(state="stateless", selectivity="1:1", forwards="*")
def kept(t):
    return (t.k, t.s, t.x)


def test_what_keeps_its_shuffle_says_why():
    def reason(stream):
        stage = layout(stream).stages[-1]
        assert not stage.local and stage.depth == 1
        return stage.reason

    made = source([[]])
    assert "key is not made of these columns: s" in reason(made.process(Running(), by="s", schema=COLUMNS))
    lost = made.map(lambda t: (t.k + 1, t.s, t.x), schema=COLUMNS).process(Running(), by="k", schema=COLUMNS)
    assert "k is not forwarded" in reason(lost)
    assert "isolate()" in reason(made.process(Running(), by="k", schema=COLUMNS).isolate())
    late = made.aggregate(by="k", window=tumbling(ab.time(1)), total=agg.sum("x"))
    assert "waits for punctuations or for time" in reason(late)
    other = made.map(kept, schema="k double, s string, x double")
    assert "k is int64 there and double here" in reason(other.process(Running(), by="k", schema=COLUMNS))
    joined = made.join(from_epochs([[]], "k long, z long", name="b"), by="k", window=ab.count(3))
    assert "brings 2 streams together" in reason(joined)
    two = made.union(made.filter(lambda t: t.x != 0)).process(Running(), by="k", schema=COLUMNS)
    assert "brings 2 streams together" in reason(two)


def test_two_operators_behind_one_source_both_run_there(tmp_path):
    rows = [by_partition([(n % 5, "a", float(n)) for n in range(30)], ("k",), 4) for _ in range(2)]
    made = source(rows, partitions=4)
    left = made.process(Running(), by="k", schema=COLUMNS, name="left")
    right = made.filter(lambda t: t.x != 3).process(Running(), by=["k", "s"], schema=COLUMNS, name="right")
    both = left.union(right).process(Running(), by="s", schema=COLUMNS, name="behind")
    run = FilesRun(both, str(tmp_path))
    run.run_epochs()
    assert spared(run) == ["left", "right"] and run.runner.program.layout.depth == 1
    assert exact(run.output) == exact(both.run_sequential())
    assert {each.name: each.channels for each in run.runner.regions} == {"left": 4, "right": 4, "behind": 4}


@pytest.mark.parametrize("reading", ["partitions", "files"])
def test_a_watermark_made_behind_the_stage_is_that_of_one_thread(tmp_path, reading):
    rows = [by_partition([(n % 5 + 2 * epoch, "ab"[n % 2], 1.0) for n in range(30)], ("k",), 4) for epoch in range(4)]
    first = source(rows, partitions=4).process(Running(), by="k", schema=COLUMNS, name="first")
    window = tumbling(ab.event_time("k", 2))
    stream = first.event_time("k", lateness=1).aggregate(by="s", window=window, total=agg.count())
    run = FilesRun(stream, str(tmp_path), reading)
    run.run_epochs()
    assert spared(run) == ["first"] and run.output and exact(run.output) == exact(stream.run_sequential())
    before = source(rows).event_time("k").process(Running(), by="k", schema=COLUMNS)
    awaited = layout(before.aggregate(by="s", window=window, total=agg.count()))
    assert "a watermark comes with the tuples" in awaited.stages[1].reason and not awaited.stages[1].local


def test_its_keys_are_run_again_too(tmp_path):
    """Option `verify`: the samples of channels that run where the source is read come to the driver."""
    rows = [by_partition([(n % 5, "a", float(n)) for n in range(30)], ("k",), 4) for _ in range(2)]
    stream = build(source(rows, partitions=4), ["running"])
    run = FilesRun(stream, str(tmp_path), verify=1.0)
    run.run_epochs()
    assert [each.verify.tuples for each in run.progress] == [30, 30]
    assert exact(run.output) == exact(stream.run_sequential())


# -- every key is checked ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.one_of(st.integers(0, 30), st.none()), min_size=2, max_size=20),
    partitions=st.integers(2, 5),
    breaks=st.integers(0, 9),
    reading=st.sampled_from(["partitions", "files", "any"]),
    before=st.booleans(),
)
def test_a_key_in_the_wrong_file_is_refused_with_its_tuple(tmp_path_factory, keys, partitions, breaks, reading, before):
    rows = by_partition([(key, "a", float(at)) for at, key in enumerate(keys)], ("k",), partitions)
    numbers = owners(rows, ("k",), partitions)
    assume(len(set(numbers)) > 1)
    good = [(keys[0], "a", 0.0)]
    stream = build(source([good, rows] if before else [rows], partitions=partitions), ["running"])
    run = FilesRun(stream, str(tmp_path_factory.mktemp("c")), reading, breaks=breaks)
    text = _refusal(run)
    if reading == "any" and not text:
        # Spark may cut the file just there: each task then has keys of one partition, and nothing is wrong.
        assert exact(run.output) == exact(stream.run_sequential())
        return
    assert text
    cuts = [at for at in range(1, len(rows)) if numbers[at] != numbers[at - 1]]
    first = cuts[breaks % len(cuts)]
    there, here = (
        int(re.search(r"those of partition (\d+)", text)[1]),
        int(re.search(r"to partition (\d+) of", text)[1]),
    )
    assert {here, there} == {numbers[first], numbers[first - 1]} and "file-" in text and "partition_of" in text
    if reading != "any":  # else the splits of the file may come in any order, and each has a first tuple
        assert here == numbers[first] and f"(k={rows[first][0]!r}, s='a', x={rows[first][2]!r})" in text
    assert len(run.output) == before  # nothing of the epoch


def _refusal(run):
    try:
        run.run_epochs()
    except InputError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("place", [1, 7, 13])
def test_the_row_that_is_wrong_may_be_anywhere_in_its_file(tmp_path, place):
    rows = [(1, "a", float(n)) for n in range(14)]
    other = next(key for key in range(99) if owners([(key, "", 0.0)], ("k",), 3) != owners(rows[:1], ("k",), 3))
    rows[place] = (other, "wrong", 0.5)

    class OneFile(FilesRun):
        def _partitions(self, rows, random):
            (source,) = self._sources
            tuples = [input_row(source, row, at) for at, row in enumerate(rows[source.name])]
            yield list(self._file(source, 0, tuples, random))

    run = OneFile(build(source([rows]), ["running"]), str(tmp_path))
    with pytest.raises(InputError, match=rf"the tuple \(k={other}, s='wrong', x=0.5\) .* k={other} belongs"):
        run.run_epochs()


@ab.model(state="stateless", selectivity="1:1", forwards="*")
def not_kept(t):
    values = list(t)
    values[0] += 1
    return tuple(values)


def test_it_is_the_key_that_counts_and_not_what_was_declared_of_it(tmp_path):
    """A wrong declaration may cost a shuffle or be refused, but never gives wrong output; also if nobody watches."""
    few = build(source([[(0, "a", 1.0)] * 2] * 3).map(not_kept, schema=COLUMNS), ["running"])
    run = FilesRun(few, str(tmp_path / "few"), "files", watch="off")
    run.run_epochs()
    assert spared(run) and exact(run.output) == exact(few.run_sequential())
    rows = by_partition([(k, "a", 1.0) for k in range(30)], ("k",), 3)
    many = build(source([rows]).map(not_kept, schema=COLUMNS), ["running"])
    with pytest.raises(InputError, match="is not where its key says"):
        FilesRun(many, str(tmp_path / "many"), "files", watch="off").run_epochs()


# -- how it is read is not in our hands ---------------------------------------------------------------------------


class Strict(ab.Operator):
    """Fails if it meets a tuple before the one that was before it."""

    last: float = ab.state(default=-1.0)

    def process(self, t):
        if t.x != self.last + 1:
            raise ValueError(f"{t.x} came behind {self.last}")
        self.last = t.x
        yield t


def strict(files, epochs=1, **more):
    """Key 1 in several files of each epoch, with another key's between."""
    other = next(key for key in range(99) if owners([(key, "", 0.0)], ("k",), 3) != owners([(1, "", 0.0)], ("k",), 3))
    rows = []
    for epoch in range(epochs):
        at = epoch * files
        rows.append([row for n in range(files) for row in ((1, "a", float(at + n)), (other, "a", float(at + n)))])
    return source(rows, **more).process(Strict(), by="k", schema=COLUMNS, name="strict")


def test_files_of_one_partition_in_several_tasks_are_shuffled_and_said_so(tmp_path):
    stream = strict(3, epochs=9)
    run = FilesRun(stream, str(tmp_path), "files")
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    assert all("maxFilesPerTrigger" in each.shuffled for each in run.progress)
    # With the shuffle it is a depth more; without, it was tried in epochs 0, 2, 5 and no others.
    assert {each.stages[-1].depth for each in run.progress} == {1}


def test_what_was_shuffled_once_is_tried_without_again(tmp_path):
    stream = strict(2, epochs=6)
    run = FilesRun(stream, str(tmp_path), "files")
    plan = compiled([stream._node])

    def explained():
        said = json.loads(plan.explain("json", run.runner.running()))
        assert ("no shuffle" in plan.explain("text", run.runner.running())) == (said["shuffles"] == 0)
        assert ("no shuffle" in plan.explain("mermaid", run.runner.running())) == (said["shuffles"] == 0)
        return said["shuffles"], said["shuffled_because"]

    assert explained() == (0, "")
    run.run_epochs(last=1)
    assert explained() == (1, run.progress[-1].shuffled)
    assert f"shuffled all the same: {run.progress[-1].shuffled}" in plan.explain("text", run.runner.running())
    run.reading = "partitions"
    run.run_epochs(first=2)
    assert [bool(each.shuffled) for each in run.progress] == [True, True, False, False, False, False]
    assert explained() == (0, "")
    assert exact(run.output) == exact(stream.run_sequential())


def test_an_error_of_an_operator_is_the_one_that_one_thread_has(tmp_path):
    rows = [[(1, "a", 0.0), (1, "a", 1.0), (1, "a", 5.0)]]
    stream = source(rows).process(Strict(), by="k", schema=COLUMNS, name="strict")
    with pytest.raises(OperatorError, match=r"5.0 came behind 1.0"):
        FilesRun(stream, str(tmp_path)).run_epochs()


def test_the_comparison_can_fail(tmp_path, monkeypatch):
    """Without the look at who had which channel, the output is wrong: so the tests above test something."""
    from anabranch.engine.driver import sparing

    monkeypatch.setattr(sparing, "_shared", lambda reports: "")
    stream = build(source([[(k % 3, "a", 1.0) for k in range(20)]]), ["running"])
    run = FilesRun(stream, str(tmp_path), "files")
    run.run_epochs()
    assert exact(run.output) != exact(stream.run_sequential())


# -- Kafka: pieces are ranges of its partitions ---------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [False, True])
def test_kafka_partitions_are_channels(tmp_path, monkeypatch, wrong):
    """As Spark's reader gives them: topic, partition, offset beside the rows, a task for each partition."""
    of = Program.of.__func__
    monkeypatch.setattr(
        Program, "of", classmethod(lambda cls, plan, _, outputs=(): of(cls, plan, {"source": "kafka"}, outputs))
    )

    class KafkaRun(FilesRun):
        def _file(self, source, number, tuples, random):
            for start in range(0, len(tuples), 4):  # Arrow batches of one task
                part = tuples[start : start + 4]
                order = [pa.array(["topic"] * len(part)), pa.array([number] * len(part), pa.int32())]
                order.append(pa.array(range(start, start + len(part)), pa.int64()))
                arrays = [*source.schema.arrays(list(zip(*part, strict=True))), *order]
                yield pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])

    rows = [by_partition([(n % 9, "a", float(n)) for n in range(50)], ("k",), 3) for _ in range(3)]
    stream = build(source(rows), ["running", "jump by both"])
    run = KafkaRun(stream, str(tmp_path), breaks=0 if wrong else None)
    if wrong:
        with pytest.raises(InputError, match=r"in partition 0 of topic topic\."):
            run.run_epochs()
        return
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    assert spared(run) and not any(each.shuffled for each in run.progress)


# -- channels are as the data is ------------------------------------------------------------------------------------


def test_its_channels_cannot_be_changed(tmp_path):
    stream = build(source([[(1, "a", 1.0)]], partitions=5), ["running"])
    run = FilesRun(stream, str(tmp_path), channels=2)
    (region,) = run.runner.regions
    assert (region.channels, region.channels_min, region.channels_max, region.pinned) == (5, 5, 5, True)
    with pytest.raises(ProgramError, match=r"partitioned by k, so it has as many channels .* partitions: 5"):
        run.runner.rescale("Running", 3)


def test_the_function_of_partitions_never_changes():
    """Data lies partitioned by it."""
    table = pa.table(
        {"k": pa.array([*range(8), None], pa.int64()), "s": ["", "a", "b", "c", "é", "longer than 8", "x", "y", None]}
    )
    assert ab.partitions_of(table, "k", 4) == GOLDEN[0]
    assert ab.partitions_of(table, "s", 7) == GOLDEN[1]
    assert ab.partitions_of(table, ["k", "s"], 16) == GOLDEN[2]


GOLDEN = (
    [0, 0, 2, 3, 3, 1, 0, 1, 3],
    [4, 5, 4, 5, 0, 6, 1, 4, 3],
    [2, 9, 5, 8, 4, 14, 0, 7, 8],
)


def test_explain_says_that_there_is_no_shuffle(capsys):
    stream = build(source([[]], partitions=5), ["running"])
    stream.explain()
    text = capsys.readouterr().out
    assert "0 shuffles per epoch" in text
    assert (
        "no shuffle: partitioned by the source, by k; runs where source (stage 0) runs, and every key is checked"
        in text
    )
    assert "one for each partition of the source; 5 for ever" in text
    stream.explain("mermaid")
    assert "no shuffle, partitioned by k" in capsys.readouterr().out
    stream.explain("svg")
    assert "no shuffle, partitioned by k" in capsys.readouterr().out


def test_the_simulator_refuses_it():
    from anabranch.sim import simulate

    with pytest.raises(ProgramError, match="Leave partitioned_by away"):
        simulate(build(source([[(1, "a", 1.0)]]), ["running"]))
