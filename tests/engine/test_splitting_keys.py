"""Hot keys split over channels and combined again: the output is that of one thread, values and order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, faults
from anabranch.api.session import from_epochs
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout.hot_key_split import with_split_aggregations
from anabranch.engine.driver.balancing import Balancing, BalancingSettings
from anabranch.engine.query_options import QueryOptions
from anabranch.engine.sequential import run_epochs
from anabranch.operators.epoch_context import EpochContext, running
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.placing.hot_key_ways import resplit
from anabranch.program.graph import upstream
from anabranch.program.hashing import hash_columns, with_part, without_part
from anabranch.testing import ParallelRun, run_sequential
from tests.faults.test_schedules import DriverDied
from tests.programs import exact

SCHEMA = "k string, f double, n long, d date, ends boolean"
EXACT = {
    "all": agg.count(),
    "some": agg.count("n"),
    "total": agg.sum("n"),
    "mean": agg.avg("n"),
    "least": agg.min("d"),
    "most": agg.max("k"),
    "early": agg.first("f"),
    "one": agg.any("n"),
}
MEASURES = sorted(EXACT.keys() - {"total"})
# Shrinking a failure of whole runs takes longer than reading one.
NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
BY = [["k"], ["f"], ["k", "f"]]
rows = st.tuples(
    st.sampled_from(["a", "a", "a", "b", "c", None]),
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
    st.sampled_from([1, -7, None, 2**62, -(2**62), 0]),
    st.dates() | st.none(),
    st.sampled_from([False, False, False, False, True]),
)
epochs_of_rows = st.lists(st.lists(rows, max_size=25), min_size=1, max_size=6)


def program(epochs, by, timed, null_key="keep", after=False, chosen=None):
    stream = from_epochs(epochs, SCHEMA)
    if not timed:
        stream = stream.punctuate(lambda t: t.ends)
    window = ab.time(1.5) if timed else ab.punctuation()
    # Sums of a few values of 2⁶² leave the range of a long; parts may, the whole must not.
    few = {name: each for name, each in EXACT.items() if name in (chosen or MEASURES)}
    stream = stream.map(lambda t: (t.k, t.f, t.n, t.d, t.ends), schema=SCHEMA)
    out = stream.aggregate(by=by, window=window, null_key=null_key, **few)
    if not after:
        return [out]
    # Also what reads it again, beside the stream it was made from: who comes first is seen at the meeting.
    both = out.map(lambda t: (str(tuple(t)),), schema="s string")
    return [out, both.union(stream.map(lambda t: (str(tuple(t)),), schema="s string"))]


class Restless:
    """Splits other keys in other ways in every epoch."""

    def __init__(self, seed: int, keys: np.ndarray) -> None:
        self._random = np.random.default_rng(seed)
        self._keys = keys

    def get(self, operator, default=None):
        if self._random.random() < 0.3:
            return HotKeyParts.of({}, everything=int(self._random.integers(1, 5)))
        chosen = self._keys[self._random.random(len(self._keys)) < 0.5]
        return HotKeyParts.of({key: int(self._random.integers(2, 6)) for key in chosen.tolist()})


def parallel(streams, path, channels, seed, times, splits):
    run = ParallelRun(streams, path, channels=channels, seed=seed, clocks_ms=times, split_hot_keys=True)
    run.runner.adaptation.balancing.hot_key_parts = lambda: splits
    run.run_epochs()
    return run


@settings(max_examples=80, deadline=None, phases=NO_SHRINKING)
@given(
    epochs=epochs_of_rows,
    by=st.sampled_from(BY),
    timed=st.booleans(),
    null_key=st.sampled_from(["keep", "drop"]),
    channels=st.integers(1, 5),
    seed=st.integers(0, 999),
    steps=st.lists(st.sampled_from([0, 400, 1000, 2000]), min_size=6, max_size=6),
    # Few together, too: what is computed over columns is decided by all of an operator's aggregations.
    chosen=st.lists(st.sampled_from(MEASURES), min_size=1, unique=True),
)
def test_splitting_keys_at_random_changes_nothing(
    tmp_path_factory, epochs, by, timed, null_key, channels, seed, steps, chosen
):
    streams = program(epochs, by, timed, null_key, after=True, chosen=chosen)
    times = np.cumsum(steps).tolist()
    keys = hash_columns([pa.array(["a", "b", "c", None])])
    run = parallel(streams, str(tmp_path_factory.mktemp("c")), channels, seed, times, Restless(seed, keys))
    for got, wanted in zip(run.outputs, run_sequential(streams, clocks_ms=times), strict=True):
        assert exact(got) == exact(wanted)


@pytest.mark.parametrize("name", ["all", "some", "least"])
def test_a_step_of_two_is_not_computed_over_columns_as_if_it_were_the_whole(tmp_path, name):
    epochs = [[("a", 0.0, n, None, False) for n in range(20)], [("b", 0.0, 1, None, False)]]
    streams = program(epochs, ["k"], timed=True, chosen=[name])
    everything = {"aggregate": HotKeyParts.of({}, everything=3)}
    run = parallel(streams, str(tmp_path), 3, 0, [0, 2000], everything)
    (wanted,) = run_sequential(streams, clocks_ms=[0, 2000])
    assert wanted and exact(run.output) == exact(wanted)


@settings(max_examples=40, deadline=None, phases=NO_SHRINKING)
@given(epochs=epochs_of_rows, by=st.sampled_from(BY), timed=st.booleans(), ways=st.integers(1, 4))
def test_the_program_in_two_steps_means_the_same(epochs, by, timed, ways):
    """On one thread, where nothing but the rewriting can be wrong."""
    streams = program(epochs, by, timed, after=True)
    nodes = [stream._node for stream in streams]
    times = [0, 1000, 1600, 4000]
    expected = run_epochs(nodes, times).outputs
    names = [node.name for node in upstream(*nodes) if node.kind == "aggregate"]
    with running(EpochContext(parts={name: HotKeyParts.of({}, everything=ways) for name in names})):
        rewritten = with_split_aggregations(nodes)
        assert len(upstream(*rewritten)) == len(upstream(*nodes)) + 2
        found = run_epochs(rewritten, times).outputs
    assert [exact(each) for each in found] == [exact(each) for each in expected]


def test_the_comparison_can_fail(tmp_path, monkeypatch):
    """A combination that forgets a part is caught."""
    from anabranch.operators import agg as module

    broken = module.PartialResults((("{s}", pa.int64()),), "{s} = {p0}")
    counting = module.dataclasses.replace(agg.count(), combine=lambda _, __: broken)
    epochs = [[("a", 0.0, 1, None, n == 19) for n in range(20)]]
    stream = from_epochs(epochs, SCHEMA).punctuate(lambda t: t.ends)
    out = stream.aggregate(by="k", window=ab.punctuation(), number=counting)
    everything = {"aggregate": HotKeyParts.of({}, everything=3)}
    assert exact(parallel([out], str(tmp_path), 3, 0, (), everything).output) != exact(out.run_sequential())


def test_a_part_may_be_larger_than_the_type_of_the_whole(tmp_path):
    epochs = [[("a", 0.0, 2**62 if n % 2 else -(2**62), None, n == 15) for n in range(16)]]
    stream = from_epochs(epochs, SCHEMA).punctuate(lambda t: t.ends)
    out = stream.aggregate(by="k", window=ab.punctuation(), total=agg.sum("n"))
    everything = {"aggregate": HotKeyParts.of({}, everything=2)}
    assert exact(parallel([out], str(tmp_path), 3, 0, (), everything).output) == exact(out.run_sequential())


def letters(**aggregations):
    stream = from_epochs([[]], SCHEMA)
    reassociate = aggregations.pop("reassociate", False)
    window = aggregations.pop("window", ab.punctuation())
    stream = stream.punctuate(lambda t: t.ends)
    node = stream.aggregate(by="k", window=window, reassociate=reassociate, **aggregations)._node
    return [node.name for node in upstream(*with_split_aggregations([node])) if node.key]


@pytest.mark.parametrize("each", EXACT.values(), ids=str)
def test_what_combines_exactly_is_split(each):
    assert letters(x=each) == ["aggregate-parts", "aggregate"]
    assert letters(x=each, window=ab.time(3)) == ["aggregate-parts", "aggregate"]


@pytest.mark.parametrize(
    "each",
    [agg.sum("f"), agg.avg("f"), agg.min("f"), agg.max("f"), agg.last("n"), agg.collect("n")],
    ids=str,
)
def test_what_depends_on_the_order_is_not_split(each):
    assert letters(x=each) == ["aggregate"]
    assert letters(x=each, y=agg.count()) == ["aggregate"]


def test_windows_that_close_with_a_tuple_are_not_split():
    assert letters(x=agg.count(), window=ab.count(3)) == ["aggregate"]
    assert letters(x=agg.count(), window=ab.delta("n", 3)) == ["aggregate"]


def test_floats_are_added_in_another_order_only_if_the_user_says_so(tmp_path):
    assert letters(x=agg.sum("f"), reassociate=True) == ["aggregate-parts", "aggregate"]
    epochs = [[("a", n / 7, 1, None, n == 99) for n in range(100)]]
    stream = from_epochs(epochs, SCHEMA).punctuate(lambda t: t.ends)
    out = stream.aggregate(by="k", window=ab.punctuation(), reassociate=True, x=agg.sum("f"), y=agg.avg("f"))
    everything = {"aggregate": HotKeyParts.of({}, everything=3)}
    (found,) = parallel([out], str(tmp_path), 3, 0, (), everything).output
    (expected,) = out.run_sequential()
    assert found.x == pytest.approx(expected.x, rel=1e-12) and found.y == pytest.approx(expected.y, rel=1e-12)


def test_without_the_option_the_program_is_as_it_was():
    (out,) = program([[]], ["k"], timed=False)
    assert [o.node.name for o in compiled([out._node]).operators if o.node.key] == ["aggregate"]


def test_a_key_with_half_of_the_rows_is_split_by_the_system_and_channels_are_balanced(tmp_path):
    random = np.random.default_rng(1)
    epochs = [
        [
            ("hot" if random.random() < 0.5 else f"k{random.integers(300)}", int(n))
            for n in random.integers(0, 500, 4000)
        ]
        for _ in range(8)
    ]
    stream = from_epochs(epochs, "k string, n long").punctuate(lambda t: t.n == 0)
    out = stream.aggregate(by="k", window=ab.punctuation(), number=agg.count(), total=agg.sum("n"))
    written: dict = {}
    run = ParallelRun(out, str(tmp_path), channels=6, split_hot_keys=True, written=written)
    run.run_epochs(0, 5)
    after = ParallelRun(out, str(tmp_path), channels=6, split_hot_keys=True, written=written)
    hot = int(hash_columns([pa.array(["hot"])])[0])
    assert list(after.runner.adaptation.balancing.hot_key_parts()["aggregate"].hashes) == [hot]
    after.run_epochs()
    channels = [[s.rows_in for s in p.stages if s.name == "aggregate-parts"] for p in run.progress]
    slowdowns = [max(each) * len(each) / sum(each) for each in channels]
    assert slowdowns[0] > 2.5 and slowdowns[5] < 1.2
    changes = [change for progress in run.progress for change in progress.changes]
    assert any("keys are split" in change.reason for change in changes) and len(changes) <= 3
    assert exact(after.output) == exact(out.run_sequential())


# -- only when it is needed -----------------------------------------------------------------------------------

EAGER = BalancingSettings(split_gain_seconds=0.0)


def counts(epochs):
    stream = from_epochs(epochs, "k string, n long").punctuate(lambda t: t.n == 0)
    return stream.aggregate(by="k", window=ab.punctuation(), number=agg.count(), total=agg.sum("n"))


def half_hot(count, share):
    random = np.random.default_rng(2)
    return [
        [
            ("hot" if random.random() < share else f"k{random.integers(300)}", int(n))
            for n in random.integers(0, 500, 4000)
        ]
        for _ in range(count)
    ]


def test_a_program_goes_over_to_two_steps_when_a_key_is_too_hot_and_a_restarted_one_stays_there(tmp_path):
    out = counts(half_hot(9, 0.6))
    written: dict = {}
    run = ParallelRun(out, str(tmp_path), channels=6, split_hot_keys="auto", balancing=EAGER, written=written)
    run.run_epochs(0, 6)
    names = [{stage.name for stage in p.stages if stage.kind == "channel"} for p in run.progress]
    assert names[:3] == [{"aggregate"}] * 3  # as long as it is not known that it pays
    assert names[3:] == [{"aggregate", "aggregate-parts"}] * 4
    rows = [[s.rows_in for s in p.stages if s.name in ("aggregate-parts", "aggregate")] for p in run.progress]
    assert max(rows[0]) * 6 / sum(rows[0]) > 3
    parts = [s.rows_in for s in run.progress[6].stages if s.name == "aggregate-parts"]
    assert max(parts) * 6 / sum(parts) < 1.25
    after = ParallelRun(out, str(tmp_path), channels=6, split_hot_keys="auto", balancing=EAGER, written=written)
    assert "aggregate-parts" in after.runner.functions
    after.run_epochs()
    assert exact(after.output) == exact(out.run_sequential())


@pytest.mark.parametrize("point", ["manifest written", "program replaced", "epoch begun"])
def test_a_driver_that_dies_around_the_moment_its_program_is_replaced_changes_nothing(tmp_path, point):
    out = counts(half_hot(7, 0.6))
    written: dict = {}
    died: list[int] = []

    def die_at(reached, facts):
        # The epoch behind which the program is replaced is 2: see the test above.
        if reached == point and facts["epoch"] in (2, 3) and not died:
            died.append(facts["epoch"])
            raise DriverDied

    def started():
        return ParallelRun(out, str(tmp_path), channels=6, split_hot_keys="auto", balancing=EAGER, written=written)

    faults.install(die_at)
    try:
        with pytest.raises(DriverDied):
            started().run_epochs()
        run = started()
        # Whatever form the checkpoint is tied to is the one that goes on.
        begins_in_parts = any(name.endswith("-parts") for name in run.runner.functions)
        assert begins_in_parts == (point == "program replaced")
        run.run_epochs()
    finally:
        faults.install(None)
    assert died and exact(run.output) == exact(out.run_sequential())


def test_a_program_without_a_hot_key_stays_as_it_was_written(tmp_path):
    out = counts(half_hot(6, 0.1))
    run = ParallelRun(out, str(tmp_path), channels=6, split_hot_keys="auto", balancing=EAGER)
    run.run_epochs()
    assert set(run.runner.functions) == {"aggregate"}
    assert exact(run.output) == exact(out.run_sequential())


def test_a_hot_key_with_little_work_does_not_pay_for_a_shuffle(tmp_path):
    run = ParallelRun(counts(half_hot(6, 0.6)), str(tmp_path), channels=6, split_hot_keys="auto")
    run.run_epochs()
    assert set(run.runner.functions) == {"aggregate"}


def test_only_regions_that_would_be_in_parts_as_a_whole_are_looked_at():
    class Running(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):
            self.seen += 1
            yield t

    def found(stream):
        return Balancing(compiled([stream._node]).layout)._splittable

    plain = from_epochs([[]], "k string, n long").punctuate(lambda t: t.n == 0)
    window = {"by": "k", "window": ab.punctuation()}
    assert found(plain.aggregate(**window, x=agg.count())) == {"aggregate"}
    assert found(plain.aggregate(**window, x=agg.last("n"))) == set()
    assert found(plain.process(Running(), by="k", schema="k string, n long")) == set()


def test_the_option_is_auto_unless_the_user_says_otherwise():
    assert QueryOptions.parse({}).split_hot_keys == "auto"
    assert QueryOptions.parse({"splithotkeys": "off"}).split_hot_keys == "off"


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(
    epochs=st.lists(st.lists(rows, max_size=25), min_size=3, max_size=6),
    by=st.sampled_from(BY),
    timed=st.booleans(),
    channels=st.integers(1, 4),
    seed=st.integers(0, 999),
    steps=st.lists(st.sampled_from([0, 400, 1000, 2000]), min_size=6, max_size=6),
    first=st.integers(0, 2),
    killed=st.booleans(),
)
def test_going_over_to_two_steps_at_any_time_changes_nothing(
    tmp_path_factory, epochs, by, timed, channels, seed, steps, first, killed
):
    """Windows are open, keys wait; and the driver may die on the way."""
    streams = program(epochs, by, timed, after=True)
    times = np.cumsum(steps).tolist()
    path, written = str(tmp_path_factory.mktemp("c")), {}

    def started():
        options = {"channels": channels, "seed": seed, "clocks_ms": times, "written": written}
        return ParallelRun(streams, path, split_hot_keys="auto", **options)

    run = started()
    run.run_epochs(0, first)
    run.runner.adaptation.balancing.wants_split = "now"
    run._switching._switch()
    if killed:
        run = started()
    assert any(name.endswith("-parts") for name in run.runner.functions)
    assert all(each.hot_keys == "" for each in run.progress)
    keys = hash_columns([pa.array(["a", "b", "c", None])])
    restless = Restless(seed, keys)
    run.runner.adaptation.balancing.hot_key_parts = lambda: restless
    run.run_epochs(first + 1)
    why = "the query began with aggregations in two steps" if killed else "now"
    assert all(each.hot_keys == why for each in run.progress if each.epoch > first)
    for got, wanted in zip(run.outputs, run_sequential(streams, clocks_ms=times), strict=True):
        assert exact(got) == exact(wanted)


# -- the numbers behind it ------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=9) | st.none(), min_size=1, max_size=20), st.integers(0, 4000))
def test_the_hash_of_a_part_follows_from_that_of_its_key(keys, part):
    column = pa.array(keys, pa.string())
    hashes = hash_columns([column])
    parts = hash_columns([column, pa.array([part] * len(keys))])
    assert with_part(hashes, part).tolist() == parts.tolist()
    assert without_part(parts, part).tolist() == hashes.tolist()


def parts_of(key: int, ways: int) -> list[int]:
    return [int(with_part(np.array([key], dtype=np.uint64), part)[0]) for part in range(ways)]


def test_a_key_above_a_fair_share_is_split_and_put_together_again():
    keys = [11, 12, 13]
    whole = np.array([parts_of(key, 1)[0] for key in keys], dtype=np.uint64)
    cut, ways = resplit(Workload(whole, np.array([0.5, 0.1, 0.02])), {}, channels=8)
    assert ways == {11: 4}
    shares = dict(zip(cut.hashes.tolist(), cut.frequencies.tolist(), strict=True))
    assert [shares[part] for part in parts_of(11, 4)] == [0.125] * 4
    assert shares[parts_of(12, 1)[0]] == 0.1
    # Counted in its parts it is the same key; a little colder it stays split, much colder it does not.
    again, ways = resplit(cut, ways, channels=8)
    assert ways == {11: 4} and again.hashes.tolist() == cut.hashes.tolist()
    colder = Workload(cut.hashes, cut.frequencies * 0.6)
    assert resplit(colder, ways, 8)[1] == {11: 4}
    assert resplit(Workload(cut.hashes, cut.frequencies * 0.2), ways, 8)[1] == {}


def test_groups_follow_their_parts():
    key = 11
    before, after = parts_of(key, 1), parts_of(key, 4)
    groups = np.full(4096, 0.5 / 4096)
    groups[before[0] >> 52] += 0.5
    workload = Workload(np.array(before, dtype=np.uint64), np.array([0.5]), group_frequencies=groups)
    cut, _ = resplit(workload, {}, channels=8)
    assert cut.group_frequencies is not None and cut.group_frequencies.sum() == pytest.approx(1)
    for part in after:
        assert cut.group_frequencies[part >> 52] == pytest.approx(0.125, rel=0.01)


def test_one_channel_and_no_keys_split_nothing():
    assert resplit(Workload.empty(), {}, 8)[1] == {}
    whole = np.array(parts_of(5, 1), dtype=np.uint64)
    assert resplit(Workload(whole, np.array([1.0])), {}, 1)[1] == {}
