"""Who writes an output: whoever it is, the rows are those of one thread in their order, and the driver has little."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.compiler.compile import compiled
from anabranch.engine.driver import output_ways
from anabranch.engine.driver.output_ways import OutputWays
from anabranch.engine.driver.sink import TableSink
from anabranch.engine.worker.file_pieces import FilePiece, in_turn
from anabranch.engine.worker.output_files import Target, in_pieces
from anabranch.engine.worker.output_mergers import mergeable
from anabranch.engine.worker.packets import number_coordinate
from anabranch.engine.worker.tasks import Program
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_sequential
from tests.graphs import build as build_graph
from tests.graphs import cases
from tests.programs import COLUMNS, build, exact

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


class Files(TableSink):
    """A directory: tables that the driver writes, and files that tasks wrote, by epoch."""

    def __init__(self, directory, schema):
        self._directory = directory
        directory.mkdir(parents=True)
        self._schema = schema
        self.published = {}
        self.by_driver = set()

    def check(self, holder):
        pass

    def prepare(self, holder):
        pass

    def write(self, table, epoch):
        self.published[epoch] = [table]
        self.by_driver.add(epoch)

    def target(self):
        return Target(str(self._directory), "lz4")

    def publish(self, files, epoch):
        self.published[epoch] = [pq.read_table(self._directory / name) for name in files]

    @property
    def rows(self):
        tables = [table for epoch in sorted(self.published) for table in self.published[epoch]]
        return [row for table in tables for row in self._schema.rows(table.columns)]

    @property
    def counts(self):
        return [len(self.published[epoch]) for epoch in sorted(self.published)]


def run(streams, place, **options):
    ends = [streams] if isinstance(streams, ab.Stream) else streams
    sinks = [Files(place / f"out{at}", stream.schema) for at, stream in enumerate(ends)]
    found = ParallelRun(ends, str(place / "checkpoint"), sinks=sinks, **options)
    found.run_epochs()
    return sinks


def set_sizes(monkeypatch, driver=64 << 20, merged=32 << 20, pieces=4 << 20):
    monkeypatch.setattr(output_ways, "DRIVER_BYTES", driver)
    monkeypatch.setattr(output_ways, "MERGED_BYTES", merged)
    monkeypatch.setattr(output_ways, "PIECES_BYTES", pieces)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=RELAXED)
@given(
    case=cases(steps_max=6, epochs_max=3),
    channels=st.integers(1, 4),
    mergers=st.sampled_from([None, None, 0, 1, 3]),
    driver=st.sampled_from([0, 8_000, 64 << 20]),
    merged=st.sampled_from([1, 2_000]),
    seed=st.integers(0, 99),
)
def test_random_graphs_give_the_same_whoever_writes(
    tmp_path_factory, monkeypatch, case, channels, mergers, driver, merged, seed
):
    streams = build_graph(*case)
    set_sizes(monkeypatch, driver, merged)
    place = tmp_path_factory.mktemp("ways")
    try:
        wanted = run_sequential(streams, clocks_ms=[0], epochs_max=20)
        sinks = run(streams, place, channels=channels, mergers=mergers, seed=seed, clocks_ms=[0])
    except ProgramError as problem:
        assume("no source" not in str(problem) and "still fed back" not in str(problem))
        raise
    for sink, rows in zip(sinks, wanted, strict=True):
        assert exact(sink.rows) == exact(rows)
        assert mergers != 0 or sink.by_driver == set(sink.published)


ROWS = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(3000)]


def test_a_large_output_is_run_once_more_and_then_written_by_mergers(tmp_path, monkeypatch):
    set_sizes(monkeypatch, driver=12_000, merged=10_000)
    stream = build(ab.from_rows(ROWS, COLUMNS, rows_per_epoch=1000), ["running"])
    (sink,) = run(stream, tmp_path, channels=3)
    assert exact(sink.rows) == exact(run_sequential([stream])[0])
    assert not sink.by_driver, "the first epoch, too: it was run once more"


def test_a_small_output_is_the_drivers_and_large_ones_are_not_for_ever(tmp_path, monkeypatch):
    set_sizes(monkeypatch, driver=1 << 20, merged=20_000)
    sizes = [10, 1000, 1000, 10, 10]
    epochs = [[(n % 5, "a", float(n)) for n in range(size)] for size in sizes]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    (sink,) = run(stream, tmp_path, channels=2)
    assert exact(sink.rows) == exact(run_sequential([stream])[0])
    # Each follows from what the epoch before had.
    assert sink.by_driver == {0, 1, 4}


def test_an_output_that_is_too_large_for_one_task_is_not_run_twice_for_ever(tmp_path, monkeypatch):
    """All of it from one of four channels: small as a whole, too much for a task."""
    set_sizes(monkeypatch, driver=64_000, merged=1 << 30)
    stream = build(ab.from_rows([(7, "a", float(n)) for n in range(4000)], COLUMNS, rows_per_epoch=1000), ["running"])
    jobs = []
    execute = ParallelRun._execute
    monkeypatch.setattr(ParallelRun, "_execute", lambda self, rows, job: jobs.append(job) or execute(self, rows, job))
    (sink,) = run(stream, tmp_path / "again", channels=4)
    assert exact(sink.rows) == exact(run_sequential([stream])[0])
    assert len(jobs) == 4 + 1 and not sink.by_driver


def test_outputs_of_every_depth_are_merged(tmp_path):
    first = build(ab.from_rows(ROWS, COLUMNS, rows_per_epoch=1500), ["running"])
    second = build(first, ["running by name"])
    sinks = run([first, second], tmp_path, channels=3, mergers=2)
    for sink, rows in zip(sinks, run_sequential([first, second]), strict=True):
        assert exact(sink.rows) == exact(rows)
        assert not sink.by_driver and sink.counts == [2, 2]


def test_what_is_made_where_it_is_read_is_written_there(tmp_path, monkeypatch):
    set_sizes(monkeypatch, driver=16_000)
    stream = ab.from_rows(ROWS, COLUMNS, rows_per_epoch=1000).filter(lambda t: t.k != 3)
    (sink,) = run(stream, tmp_path, seed=3)
    assert exact(sink.rows) == exact(run_sequential([stream])[0])
    assert not sink.by_driver


def test_mergers_0_leaves_everything_to_the_driver(tmp_path, monkeypatch):
    set_sizes(monkeypatch, driver=0, merged=0, pieces=0)
    stream = build(ab.from_rows(ROWS, COLUMNS, rows_per_epoch=1500), ["running"])
    (sink,) = run(stream, tmp_path, mergers=0)
    assert exact(sink.rows) == exact(run_sequential([stream])[0]) and sink.by_driver == {0, 1}


def layout_of(*streams):
    return Program.of(compiled([stream._node for stream in streams]), {}).layout


def test_which_outputs_can_be_written_in_pieces_and_which_merged():
    source = ab.from_rows(ROWS, COLUMNS, name="in")
    even, odd = source.filter(lambda t: t.k % 2 == 0), source.filter(lambda t: t.k % 2 == 1)
    other = ab.from_rows(ROWS, COLUMNS, name="other")
    keyed = build(source, ["running"])
    layout = layout_of(even, even.union(odd), even.union(other), keyed, keyed.union(even))
    assert [in_pieces(layout, at) for at in range(5)] == [True, False, True, False, False]
    assert [mergeable(layout, at) for at in range(5)] == [False, False, False, True, False]


class Tables(TableSink):
    """Takes no files."""


@pytest.mark.parametrize(
    ("sink", "mergers", "said"),
    [(Tables(), None, "cannot write for its sink"), (None, 0, "mergers=0"), (None, None, "it is small; from 32.0 MB")],
)
def test_why_an_output_passes_through_the_driver(tmp_path, sink, mergers, said):
    stream = build(ab.from_rows(ROWS, COLUMNS), ["running"])
    used = sink or Files(tmp_path / "out", stream.schema)
    assert said in OutputWays(layout_of(stream), [used], mergers).through_driver()[0]


@given(sizes=st.lists(st.integers(0, 50), max_size=12), tasks=st.integers(1, 5))
def test_pieces_dealt_in_turn_keep_their_order_and_shares_are_even(sizes, tasks):
    pieces = [FilePiece(0, "f", number_coordinate(at), 0.0, (0,), size) for at, size in enumerate(sizes)]
    shares = in_turn(pieces[::-1], tasks)
    assert [piece for share in shares for piece in share] == pieces
    assert 1 <= len(shares) <= tasks and (all(shares) or not pieces)
    largest = max((max(piece.size, 1) for piece in pieces), default=0)
    total = sum(max(piece.size, 1) for piece in pieces)
    assert max(sum(max(piece.size, 1) for piece in share) for share in shares) <= total / tasks + largest + 1


def test_schema_of_published_files_is_that_of_the_output(tmp_path, monkeypatch):
    set_sizes(monkeypatch, driver=0)
    stream = ab.from_rows(ROWS, COLUMNS).map(lambda t: (t.k, t.s), schema="k long, s string")
    (sink,) = run(stream, tmp_path)
    (table,) = {table.schema.remove_metadata() for table in sink.published[0]}
    assert table.types == [pa.int64(), pa.string()]
