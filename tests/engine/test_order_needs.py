"""Order only where somebody needs it: what is given up, what is kept all the same, and which edges carry trails."""

import collections
import os
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults, testing
from anabranch.api.session import from_epochs
from anabranch.compiler.layout import order_needs
from anabranch.compiler.layout.order_needs import with_needed_order
from anabranch.engine.driver.sink import TableSink
from anabranch.engine.worker.output_files import Target
from anabranch.errors import ProgramError
from anabranch.program.model import Ordering, OutputOrder
from anabranch.testing import ParallelRun, TaskDied, run_sequential
from tests.graphs import build as build_graph
from tests.graphs import cases, clocks
from tests.programs import COLUMNS, STEPS, Running, build, epochs, exact

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]

# What may come last, with the columns of its key.
ENDS = {"running": ("k",), "last": ("k",), "jump by both": ("k", "s"), "running by name": ("s",), "history": ("s",)}


def by_key(rows, columns):
    """The rows of each key, in their order."""
    found = collections.defaultdict(list)
    for row in rows:
        found[tuple(repr(getattr(row, name)) for name in columns)].append(repr(row))
    return dict(found)


def compare(got, wanted, order, columns=()):
    """Whether an output is what its order promises."""
    assert sorted(exact(got)) == sorted(exact(wanted))
    if order == "total":
        assert exact(got) == exact(wanted)
    if order == "key":
        assert by_key(got, columns) == by_key(wanted, columns)


# -- what is promised ---------------------------------------------------------------------------------------


@settings(max_examples=120, derandomize=True, deadline=None, suppress_health_check=RELAXED)
@given(
    epochs=epochs,
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    end=st.sampled_from(sorted(ENDS)),
    behind=st.lists(st.sampled_from(["filter", "halve"]), max_size=2),
    orders=st.tuples(*[st.sampled_from(["total", "key", "none"])] * 2),
    channels=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_a_chain_keeps_what_each_of_its_outputs_needs(
    tmp_path_factory, epochs, steps, end, behind, orders, channels, seed
):
    """The second output is the stream before the last stateless steps: both may share every edge but their own."""
    keyed = STEPS[end](build(from_epochs(epochs, COLUMNS), steps))
    streams = [build(keyed, behind), keyed]
    run = ParallelRun(streams, str(tmp_path_factory.mktemp("c")), channels=channels, seed=seed, orders=orders)
    run.run_epochs()
    for got, wanted, order in zip(run.outputs, run_sequential(streams), orders, strict=True):
        compare(got, wanted, order, ENDS[end])


@settings(
    max_examples=int(os.environ.get("ANABRANCH_PROGRAMS", "120")),
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    deadline=None,
    suppress_health_check=RELAXED,
)
@given(case=cases(), channels=st.integers(1, 6), seed=st.integers(0, 10**6), times=clocks, chosen=st.integers(0, 31))
def test_any_graph_keeps_inside_what_its_operators_need(tmp_path_factory, case, channels, seed, times, chosen):
    """Joins, windows, punctuations, feedback: an output in any order has the tuples of one thread all the same."""
    recipe, inputs = case
    streams = build_graph(recipe, inputs)
    orders = ["none" if chosen >> at & 1 else "total" for at in range(len(streams))]
    directory = str(tmp_path_factory.mktemp("c"))
    try:
        run = ParallelRun(streams, directory, channels=channels, seed=seed, clocks_ms=times, orders=orders)
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        assume("no source" not in str(problem) and "still fed back" not in str(problem))
        raise
    run.run_epochs()
    for got, wanted, order in zip(run.outputs, expected, orders, strict=True):
        compare(got, wanted, order)


def test_without_trails_between_regions_the_order_within_keys_is_lost(tmp_path, monkeypatch):
    """The comparison can fail, and the trails between two regions are there for a reason."""
    nobody = dict.fromkeys(range(9), Ordering.TOLERANT)
    monkeypatch.setattr(order_needs, "_minds", lambda layout, outputs: nobody)
    rows = [(n * 7 % 5, "ab"[n % 2], float(n)) for n in range(300)]
    stream = build(ab.from_rows(rows, COLUMNS), ["running", "running by name"])
    run = ParallelRun(stream, str(tmp_path), channels=4, orders=["key"])
    run.run_epochs()
    assert by_key(run.output, ("s",)) != by_key(stream.run_sequential(), ("s",))


# -- operators that do not mind -----------------------------------------------------------------------------


@ab.model(ordering="tolerant")
class Count(ab.Operator):
    """How many: which tuple was which does not matter."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)


@ab.model(ordering="tolerant")
class CountAll:
    """The same without a key: one channel, which takes tuples as they come."""

    def __init__(self):
        self.seen = 0

    def __call__(self, t):
        self.seen += 1
        yield (t.k, self.seen * 0)


@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=RELAXED)
@given(
    epochs=epochs,
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    tolerant=st.sampled_from([(Count, "k"), (CountAll, None)]),
    channels=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_tolerant_operators_get_all_tuples_in_any_order(tmp_path_factory, epochs, steps, tolerant, channels, seed):
    kind, key = tolerant
    before = build(from_epochs(epochs, COLUMNS), steps)
    both = before.union(before.map(lambda t: t, schema=COLUMNS))
    stream = both.process(kind(), schema="k long, n long", **({"by": key} if key else {}))
    run = ParallelRun(stream, str(tmp_path_factory.mktemp("c")), channels=channels, seed=seed, orders=["none"])
    run.run_epochs()
    compare(run.output, stream.run_sequential(), "none")


@ab.model(ordering="tolerant")
class Passing(ab.Operator):
    """Does not mind, but hands its tuples on, and who takes them may mind."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield t


@ab.model(ordering="tolerant", state="unknown")
class PassingAll:
    """The same on one channel."""

    def __call__(self, t):
        yield t


LINKS = {
    "running": lambda s: s.process(Running(), by="k", schema=COLUMNS),
    "running alone": lambda s: s.process(Running(), by="k", schema=COLUMNS).isolate(),
    "running by name": lambda s: s.process(Running(), by="s", schema=COLUMNS),
    "passing": lambda s: s.process(Passing(), by="k", schema=COLUMNS),
    "passing alone": lambda s: s.process(Passing(), by="k", schema=COLUMNS).isolate(),
    "passing by name": lambda s: s.process(Passing(), by="s", schema=COLUMNS),
    "passing all": lambda s: s.process(PassingAll(), schema=COLUMNS),
    "filter": lambda s: s.filter(lambda t: t.x != 3),
    "filter alone": lambda s: s.filter(lambda t: t.x != 3).isolate(),
}
LAST = {"running": ("k",), "running by name": ("s",), "passing": ("k",), "passing by name": ("s",)}


@settings(
    max_examples=int(os.environ.get("ANABRANCH_PROGRAMS", "60")),
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    deadline=None,
    suppress_health_check=RELAXED,
)
@given(
    epochs=epochs,
    links=st.lists(st.sampled_from(sorted(LINKS)), min_size=1, max_size=4),
    last=st.sampled_from(sorted(LAST)),
    order=st.sampled_from(["key", "none"]),
    channels=st.integers(2, 6),
    seed=st.integers(0, 10**6),
)
def test_who_minds_gets_order_whoever_hands_it_on(tmp_path_factory, epochs, links, last, order, channels, seed):
    """Operators that do not mind stand before some that do; keys that stay in their channels send no trails."""
    stream = from_epochs(epochs, COLUMNS)
    for link in [*links, last]:
        stream = LINKS[link](stream)
    run = ParallelRun(stream, str(tmp_path_factory.mktemp("c")), channels=channels, seed=seed, orders=[order])
    run.run_epochs()
    compare(run.output, stream.run_sequential(), order, LAST[last])


def test_a_stage_that_hands_on_what_it_got_in_no_order_is_caught(tmp_path, monkeypatch):
    """The comparison above can fail: if only who minds itself is asked, a stage of one channel mixes what it gets."""
    rows = [(n * 7 % 5, "ab"[n % 2], float(n)) for n in range(300)]
    stream = ab.from_rows(rows, COLUMNS)
    for link in ("running", "passing all", "running by name"):
        stream = LINKS[link](stream)

    def ran(name):
        run = ParallelRun(stream, str(tmp_path / name), channels=4, orders=["key"])
        run.run_epochs()
        return by_key(run.output, ("s",))

    wanted = by_key(stream.run_sequential(), ("s",))
    assert ran("right") == wanted
    minds = order_needs._minds

    def alone(layout, outputs):
        tolerant = [stage.number for stage in layout.stages if stage.kind == "single"]
        return {**minds(layout, outputs), **dict.fromkeys(tolerant, Ordering.TOLERANT)}

    monkeypatch.setattr(order_needs, "_minds", alone)
    assert ran("wrong") != wanted


# -- which edges carry trails -------------------------------------------------------------------------------


def trails(stream, *orders):
    """For every edge between stages and out of the program: where from, where to, numbers per tuple."""
    layout = with_needed_order(stream.plan().layout, [OutputOrder(order) for order in orders])
    found = {}
    for edge in layout.edges:
        if edge.crosses or edge.target < 0:
            target = "out" if edge.target < 0 else layout.steps[edge.target].node.name
            found[layout.steps[edge.source].node.name, target] = edge.width
    return found


def test_a_region_behind_a_source_needs_no_trails_unless_its_output_is_in_total_order():
    stream = ab.from_rows([], COLUMNS).process(Running(), by="k", schema=COLUMNS, name="one")
    assert trails(stream, "total") == {("source", "one"): 1, ("one", "out"): 1}
    assert trails(stream, "key") == trails(stream, "none") == {("source", "one"): 0, ("one", "out"): 0}


def test_between_regions_order_within_keys_needs_trails_from_the_source_on():
    one = ab.from_rows([], COLUMNS).process(Running(), by="k", schema=COLUMNS, name="one")
    two = one.process(Running(), by="s", schema=COLUMNS, name="two")
    assert trails(two, "none") == {("source", "one"): 1, ("one", "two"): 1, ("two", "out"): 0}
    tolerant = one.process(Count(), by="s", schema="k long, n long", name="three")
    assert trails(tolerant, "none") == {("source", "one"): 0, ("one", "three"): 0, ("three", "out"): 0}


def test_behind_a_region_with_the_same_key_order_within_keys_needs_no_trails():
    def two(ordering):
        kind = ab.model(ordering=ordering)(type("Two", (Running,), {})) if ordering else Running
        one = ab.from_rows([], COLUMNS).process(Running(), by="k", schema=COLUMNS, name="one").isolate()
        return one.process(kind(), by="k", schema=COLUMNS, name="two")

    none = {("source", "one"): 0, ("one", "two"): 0, ("two", "out"): 0}
    assert trails(two(""), "none") == trails(two("per key"), "key") == trails(two("tolerant"), "none") == none
    assert trails(two("needed"), "none") == {("source", "one"): 1, ("one", "two"): 1, ("two", "out"): 0}


def test_what_has_no_state_minds_only_if_that_is_said():
    def read_by(ordering):
        def same(t):
            return t

        one = ab.from_rows([], COLUMNS).process(Running(), by="k", schema=COLUMNS, name="one")
        made = ab.model(ordering=ordering)(same) if ordering else same
        return trails(one.map(made, schema=COLUMNS, name="same").isolate(), "none")["one", "same"]

    assert [read_by(each) for each in ("", "tolerant", "per key", "needed")] == [0, 0, 1, 1]


class Global:
    """Ordinary code that no key can be found for."""

    def __init__(self):
        self.last = None

    def __call__(self, t):
        before, self.last = self.last, t.s
        yield t.but(s=f"{before}")


def test_one_channel_hands_its_tuples_on_in_order_without_trails():
    one = ab.from_rows([], COLUMNS).process(Global(), schema=COLUMNS, name="one")
    two = one.process(Running(), by="s", schema=COLUMNS, name="two")
    assert trails(two, "key") == {("source", "one"): 0, ("one", "two"): 0, ("two", "out"): 0}


def test_what_is_fed_back_carries_trails_only_if_somebody_behind_minds():
    def looped(kind):
        again = ab.feedback(COLUMNS, name="again")
        both = ab.from_rows([], COLUMNS).union(again)
        counted = both.process(kind, by="k", schema=COLUMNS, name="counted")
        again.close(counted.filter(lambda t: t.x > 100))
        return trails(counted, "none")

    assert set(looped(Running()).values()) != {0}
    assert set(looped(Tolerated()).values()) == {0}


@ab.model(ordering="tolerant")
class Tolerated(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, t.s, float(self.seen))


def test_order_within_keys_of_what_has_no_key_is_refused():
    stream = ab.from_rows([], COLUMNS).filter(lambda t: t.k == 1)
    with pytest.raises(ProgramError, match="which has no key"):
        trails(stream, "key")


# -- files that channels write themselves ---------------------------------------------------------------------


class DirectorySink(TableSink):
    """Files in a directory, by the rules of the file sink: staged by tasks, renamed by the driver."""

    root: Path

    def __init__(self, number, schema, written):
        self._directory = self.root / str(number)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._schema = schema

    @property
    def rows(self):
        files = sorted(self._directory.glob("part-*"))
        return [row for file in files for row in self._schema.rows(pq.read_table(file).columns)]

    def check(self, owner):
        pass

    def prepare(self, owner):
        pass

    def write(self, table, epoch):
        raise AssertionError("nothing of an output without order passes through the driver")

    def target(self):
        return Target(str(self._directory), "snappy")

    def publish(self, files, epoch):
        for old in self._directory.glob(f"part-{epoch:012d}-*"):
            old.unlink()
        for number, name in enumerate(files):
            os.replace(self._directory / name, self._directory / f"part-{epoch:012d}-{number:05d}.parquet")


class DriverDied(Exception):  # noqa: N818 - an event
    pass


@pytest.mark.parametrize("seed", range(24))
def test_files_of_channels_hold_every_epoch_once_whatever_dies(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(DirectorySink, "root", tmp_path / "out", raising=False)
    monkeypatch.setattr(testing, "_Sink", DirectorySink)
    chance = random.Random(seed)
    steps = chance.choice([["running"], ["filter", "running by name"], ["running", "running by name"]])
    data = [[(n % 7, "ab"[n % 2], float(n)) for n in range(chance.randrange(40))] for _ in range(5)]
    keyed = build(from_epochs(data, COLUMNS), steps)
    streams = [keyed, keyed.map(lambda t: t, schema=COLUMNS)]
    columns = ("s",) if steps[-1] == "running by name" else ("k",)

    def die(point, facts):
        if chance.random() < 0.1:
            raise TaskDied if point == "segment written" else DriverDied

    faults.install(die)
    try:
        while True:
            channels = chance.choice([1, 2, 4])
            run = ParallelRun(streams, str(tmp_path / "c"), channels=channels, seed=seed, orders=["key", "none"])
            try:
                run.run_epochs()
                break
            except (DriverDied, TaskDied):
                continue
    finally:
        faults.install(None)
    for got, wanted, order in zip(run.outputs, run_sequential(streams), ["key", "none"], strict=True):
        compare(got, wanted, order, columns)


def test_files_are_written_by_splitters_and_by_channels(tmp_path, monkeypatch):
    """A program without regions has no channels: whoever reads writes."""
    monkeypatch.setattr(DirectorySink, "root", tmp_path / "out", raising=False)
    monkeypatch.setattr(testing, "_Sink", DirectorySink)
    source = ab.from_rows([(n % 5, "a", float(n)) for n in range(100)], COLUMNS, rows_per_epoch=30)
    plain = source.filter(lambda t: t.x > 3)
    keyed = plain.process(Running(), by="k", schema=COLUMNS)
    streams = [plain, keyed, plain.union(keyed)]
    run = ParallelRun(streams, str(tmp_path / "c"), channels=3, orders=["none"] * 3)
    run.run_epochs()
    for got, wanted in zip(run.outputs, run_sequential(streams), strict=True):
        compare(got, wanted, "none")
    assert sum(progress.rows_out for progress in run.progress) == sum(map(len, run.outputs))
