"""The driver's side of the checkpoint: manifests, and which program it belongs to."""

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.control.controller import ControllerMemory
from anabranch.control.epoch_size import EpochSizeMemory
from anabranch.engine.driver.program_description import describe_program
from anabranch.engine.worker.tasks import Program
from anabranch.errors import CheckpointError, EpochTaken
from anabranch.partitioning.counting.knowledge import KnownKeys
from anabranch.partitioning.placing.planner import PlannerMemory
from anabranch.state import envelope
from anabranch.state.adaptation_facts import AdaptationFacts, BalancingFacts, ScalingFacts, SizingFacts
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.described_program import DescribedProgram
from anabranch.state.envelope import seal, unseal
from anabranch.state.files import LocalFiles
from anabranch.state.key_owners import KeyOwners
from anabranch.state.manifest_facts import FedBack, ManifestFacts
from anabranch.state.ownership import Ownership
from anabranch.state.records import SegmentRecord

RECORD = SegmentRecord(
    name="Sum/000000000001-00000-abc.segment",
    operator="Sum",
    channel=0,
    generation=0,
    route=("k",),
    first=1,
    last=1,
    rows=3,
    bytes=9,
    checksum=7,
)


@pytest.fixture
def checkpoint(tmp_path) -> Checkpoint:
    return Checkpoint(LocalFiles(str(tmp_path)))


@pytest.fixture
def owned(checkpoint) -> Checkpoint:
    """A checkpoint that epochs may be committed to."""
    checkpoint.bind(PROGRAM)
    return checkpoint


def content(checkpoint: Checkpoint) -> list[str]:
    root = LocalFiles(checkpoint.files.root).path("")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# -- manifests ---------------------------------------------------------------------------------------------

names = st.sampled_from(["", "é", '"', "\n", "loop"])
remembered = st.dictionaries(names, st.integers(-(2**63), 2**63) | names | st.none(), max_size=3)
numbers = st.integers(0, 2**40)
memories = st.builds(ControllerMemory, names, numbers, st.none() | numbers, numbers, remembered)
scaling = st.builds(ScalingFacts, numbers, st.dictionaries(names, memories, max_size=2))
columns = ["hashes", "appearances", "groups", "group_costs", "key_costs", "key_cost_hashes", "measured_hashes"]
packed = dict.fromkeys([*columns, "measured"], names)
parts = st.floats(0, 1e9)
sums = st.lists(parts, max_size=5)
balancing = st.builds(
    BalancingFacts,
    st.none() | st.builds(KnownKeys, **packed, measured_sums=sums, share_sampled=parts, group_rows_max=parts),
    st.builds(PlannerMemory, numbers, numbers),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), numbers), max_size=2).map(tuple),
)
sizes = st.builds(EpochSizeMemory, st.dictionaries(names, numbers), st.none() | st.floats(0, 10), st.booleans())
sizing = st.builds(SizingFacts, sizes, st.dictionaries(names, numbers, max_size=2))
facts = st.builds(
    ManifestFacts,
    batch=st.integers(-1, 10**12),
    clock_ms=st.integers(0, 2**60),
    owners=st.integers(1, 5).map(lambda channels: KeyOwners().started({"Sum": {"Sum": ("k",)}}, {"Sum": channels})),
    feedback=st.dictionaries(names, st.builds(FedBack, names, st.integers(0, 2**40)), max_size=2),
    adaptation=st.builds(AdaptationFacts, scaling, st.dictionaries(names, balancing, max_size=2), st.none() | sizing),
)


@settings(max_examples=30)
@given(epoch=st.integers(0, 10**12 - 1), facts=facts)
def test_a_manifest_comes_back_from_its_bytes(epoch, facts):
    manifest = Manifest(epoch, {"Sum": [RECORD]}, facts)
    assert Manifest.from_bytes(manifest.to_bytes("q"), "q", "m") == manifest


def test_before_the_first_epoch_there_is_an_empty_manifest(checkpoint):
    assert checkpoint.latest() == Manifest(-1, {})


def test_the_last_committed_epoch_is_the_latest(owned):
    for epoch in range(12):
        owned.commit(Manifest(epoch, {"Sum": [RECORD]}, ManifestFacts(batch=2)))
    assert owned.latest() == Manifest(11, {"Sum": [RECORD]}, ManifestFacts(batch=2))


def epochs_in(checkpoint: Checkpoint) -> list[str]:
    return [name for name in content(checkpoint) if name.startswith("epochs/")]


def test_only_so_many_manifests_are_kept(tmp_path):
    checkpoint = Checkpoint(LocalFiles(str(tmp_path)), kept=3)
    checkpoint.bind(PROGRAM)
    for epoch in range(7):
        checkpoint.begin(epoch, 1000)
        checkpoint.commit(Manifest(epoch, {}))
    assert [name for name in epochs_in(checkpoint) if name.endswith(".json")] == [
        f"epochs/{epoch:012d}.json" for epoch in (4, 5, 6)
    ]
    assert not (tmp_path / "epochs/000000000003.begun").exists()


def test_manifests_that_a_lower_number_of_versions_does_not_keep_are_removed(tmp_path, owned):
    for epoch in range(9):
        owned.begin(epoch, 1000)
        owned.commit(Manifest(epoch, {}))
    fewer = Checkpoint(LocalFiles(str(tmp_path)), kept=2)
    fewer.bind(PROGRAM)
    assert fewer.clean() == 14
    assert epochs_in(fewer) == [f"epochs/{epoch:012d}.{kind}" for epoch in (7, 8) for kind in ("begun", "json")]


def test_an_epoch_that_begins_again_has_the_time_it_had(owned):
    assert owned.begin(0, 1000).clock_ms == 1000
    assert owned.begin(0, 2000).clock_ms == 1000
    assert owned.begin(1, 2000).clock_ms == 2000


def test_a_damaged_newest_manifest_means_that_its_epoch_runs_again(owned):
    owned.commit(Manifest(3, {"Sum": [RECORD]}))
    owned.files.write("epochs/000000000004.json", b"{")
    assert owned.latest().epoch == 3
    owned.commit(Manifest(4, {}))
    assert owned.latest().epoch == 4


def test_a_file_that_is_still_being_written_is_no_manifest(owned):
    owned.commit(Manifest(0, {}))
    owned.files.write("epochs/_000000000001.json.123.tmp", b"{")
    assert owned.latest().epoch == 0


GOOD = Manifest(3, {"Sum": [RECORD]}, ManifestFacts(batch=2))


def damages(good: bytes, other: bytes) -> dict[str, bytes]:
    """What may happen to a file: the whole family, for every kind of file."""
    flips = {}
    for at in range(len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 1 << (at % 8)
        flips[f"bit {at} flipped"] = bytes(flipped)
    cuts = {f"cut at {at}": good[:at] for at in range(0, len(good), 7)}
    return {**flips, **cuts, "longer": good + b"x", "another query's": other, "other JSON": b"[]", "not text": b"\xff"}


def test_every_damage_of_a_manifest_is_found_and_named(owned):
    good, other = GOOD.to_bytes(owned.query or ""), GOOD.to_bytes("another")
    for how, data in damages(good, other).items():
        owned.files.write("epochs/000000000003.json", data)
        with pytest.raises(CheckpointError, match=r"epochs/000000000003\.json is damaged: .* Restore it"):
            owned.latest()
            pytest.fail(how)
    owned.files.write("epochs/000000000003.json", good)
    assert owned.latest() == GOOD


def test_a_manifest_under_another_epochs_name_is_damage(owned):
    owned.files.write("epochs/000000000004.json", GOOD.to_bytes(owned.query or ""))
    with pytest.raises(CheckpointError, match="it is the manifest of epoch 3"):
        owned.latest()


def test_a_file_of_another_format_is_refused(owned, monkeypatch):
    monkeypatch.setattr(envelope, "_header", functools.partial(envelope._header, version=9))
    data = GOOD.to_bytes(owned.query or "")
    monkeypatch.undo()
    owned.files.write("epochs/000000000003.json", data)
    with pytest.raises(CheckpointError, match="has the format 9; this version reads 3"):
        owned.latest()


def test_every_damage_of_an_epochs_beginning_lets_it_begin_anew(owned, caplog):
    owned.begin(7, 1234, drain=True)
    good = owned.files.read("epochs/000000000007.begun")
    other = seal("epoch begun", "another", unseal(good, "epoch begun", None, ""))
    owned.begin(8, 99)
    beginnings = {**damages(good, other), "another epoch's": owned.files.read("epochs/000000000008.begun")}
    for how, data in beginnings.items():
        owned.files.write("epochs/000000000007.begun", data)
        assert owned.begun(7) is None, how
    assert owned.begin(7, 5678).clock_ms == 5678 == owned.begin(7, 9999).clock_ms
    assert "000000000007.begun is damaged" in caplog.text


# -- one owner ---------------------------------------------------------------------------------------------


def another(checkpoint: Checkpoint) -> Checkpoint:
    """A second driver on the same checkpoint."""
    found = Checkpoint(checkpoint.files)
    found.bind(PROGRAM)
    return found


def test_a_driver_whose_checkpoint_was_taken_over_begins_and_commits_nothing(owned):
    owned.commit(Manifest(0, {}, ManifestFacts(batch=1)))
    second = another(owned)
    with pytest.raises(CheckpointError, match=r"another driver \(process \d+ on .*\) has taken over"):
        owned.begin(1, 1000)
    with pytest.raises(CheckpointError, match="has taken over"):
        owned.commit(Manifest(1, {}, ManifestFacts(batch=1)))
    second.commit(Manifest(1, {}, ManifestFacts(batch=2)))
    assert second.latest().facts.batch == 2


def test_a_driver_that_wakes_up_between_its_look_and_its_manifest_does_not_replace_the_others(owned):
    second = another(owned)

    def other_commits(point, facts):
        faults.install(None)
        second.commit(Manifest(0, {}, ManifestFacts(batch=2)))

    first = Checkpoint(owned.files)
    first.bind(PROGRAM)
    second = another(first)
    monkey = first.owner.check
    first.owner.check = lambda: None  # its look was before
    faults.install(other_commits)
    try:
        with pytest.raises(EpochTaken, match="committed by another driver"):
            first.commit(Manifest(0, {}, ManifestFacts(batch=1)))
    finally:
        faults.install(None)
    first.owner.check = monkey
    assert second.latest().facts.batch == 2


def test_the_beginning_of_an_epoch_is_that_of_the_driver_that_was_first(owned):
    second = another(owned)
    assert second.begin(0, 2000).clock_ms == 2000
    owned.owner.check = lambda: None
    assert owned.begin(0, 1000).clock_ms == 2000


def test_owners_count_on_even_if_their_files_are_gone(owned):
    owned.commit(Manifest(0, {}))
    for name in owned.files.names("owners"):
        owned.files.delete(f"owners/{name}")
    with pytest.raises(CheckpointError, match="is gone: somebody removed it"):
        owned.commit(Manifest(1, {}))
    assert another(owned).owner.token == owned.owner.token + 1


def test_only_the_last_owners_are_remembered(owned):
    for _ in range(20):
        last = another(owned)
    assert len(last.files.names("owners")) <= 4 and last.owner.token == 21


def test_whoever_takes_a_checkpoint_removes_what_the_dead_were_writing(tmp_path):
    files = LocalFiles(str(tmp_path))
    Checkpoint(files).bind(DescribedProgram())
    places = ["_a.1.tmp", "epochs/_a.1.tmp", "feedback/_a.1.tmp", "owners/_a.1.tmp", "state/op/_a.1.tmp"]
    places.append("sources/rows/_000000000.parquet.1.tmp")
    for name in places:
        files.write(name, b"cut off")
    Checkpoint(files).bind(DescribedProgram())
    assert not list(tmp_path.rglob("*.tmp"))


def test_of_many_that_take_at_once_everybody_gets_another_number(tmp_path):
    files = LocalFiles(str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(lambda _: Ownership.take(files, "q").token, range(40)))
    assert len(set(tokens)) == 40


def test_what_dead_drivers_were_writing_is_removed_by_the_next(owned):
    for name in ("_a.tmp", "epochs/_b.1.tmp", "feedback/_c.2.tmp", "state/Sum/_d.3.tmp"):
        owned.files.write(name, b"part")
    second = another(owned)
    assert not [name for name in content(second) if name.endswith(".tmp")]


# -- which program -----------------------------------------------------------------------------------------


class Sum(ab.Operator):
    total = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        return t


class Other(ab.Operator):
    seen = ab.state(default=0)

    def process(self, t):
        return t


def description(stream: ab.Stream) -> DescribedProgram:
    return describe_program(Program.of(stream.plan(), {}))


def source(schema: str = "k string, x long") -> ab.Stream:
    return ab.from_rows([], schema)


PROGRAM = description(source().filter(bool).process(Sum(), by="k", name="sum"))


def test_a_new_checkpoint_is_bound_and_the_same_program_may_return(checkpoint):
    checkpoint.bind(PROGRAM)
    before = checkpoint.files.read("program.json")
    checkpoint.bind(description(source().filter(bool).process(Sum(), by="k", name="sum")))
    assert content(checkpoint) == ["owners/000000000001.json", "program.json"]
    assert checkpoint.files.read("program.json") == before


def test_sources_stay_those_that_spark_has_numbered_in_their_order(checkpoint):
    def program(*names, way=1):
        first, *others = [from_epochs([[("a", 1)]], "k string, x long", name=name) for name in names][::way]
        for each in others:
            first = first.union(each)
        return description(first.process(Sum(), by="k", name="sum"))

    checkpoint.bind(program("one", "two"))
    assert checkpoint.check(program("one", "two", way=-1)) == []  # what counts is the order in which they are declared
    for names in (("two", "one"), ("one",), ("one", "three"), ("one", "two", "three")):
        with pytest.raises(CheckpointError, match=f"sources were one, two and are now {', '.join(names)}: declare the"):
            checkpoint.check(program(*names), allow_state_loss=True)


def test_checking_a_new_checkpoint_writes_nothing(checkpoint):
    checkpoint.check(PROGRAM)
    assert content(checkpoint) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            source().filter(bool),
            "operator sum (process) is in the checkpoint and not in the program, and its state would be lost",
        ),
        (
            source().filter(bool).process(Sum(), by="x", name="sum"),
            "operator sum: its key was ['k'] and is now ['x']",
        ),
        (
            source("k binary, x long").filter(bool).process(Sum(), by="k", name="sum"),
            "operator sum: its key types was ['string'] and is now ['binary']",
        ),
        (
            source().filter(bool).process(Other(), by="k", name="sum"),
            "operator sum: its state no longer has total",
        ),
    ],
    ids=["operator gone", "other key", "other type of key", "other state"],
)
def test_another_program_is_refused_with_what_differs(checkpoint, other, expected):
    checkpoint.bind(PROGRAM)
    before = checkpoint.files.read("program.json")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.bind(description(other))
    assert "belongs to another program" in str(caught.value) and expected in str(caught.value)
    assert checkpoint.files.root in str(caught.value) and "Use another checkpointLocation" in str(caught.value)
    assert checkpoint.files.read("program.json") == before


def test_a_program_that_lost_only_state_may_go_on_if_that_is_allowed(checkpoint):
    checkpoint.bind(PROGRAM)
    other = description(source().filter(bool))
    with pytest.raises(CheckpointError, match="allowStateLoss"):
        checkpoint.bind(other)
    (change,) = checkpoint.bind(other, allow_state_loss=True)
    assert "its state would be lost" in change
    assert checkpoint.bind(other) == []


def test_checking_a_changed_program_writes_nothing(checkpoint):
    checkpoint.bind(PROGRAM)
    before = checkpoint.files.read("program.json")
    assert checkpoint.check(description(source().process(Sum(), by="k", name="sum"))) != []
    assert checkpoint.files.read("program.json") == before


def test_every_damage_of_the_description_is_refused_and_named_before_anything_is_committed(owned):
    good = owned.files.read("program.json")
    other = seal("program", "another", unseal(good, "program", None, ""))
    for how, data in damages(good, other).items():
        if how != "another query's":  # nothing says yet whose it is
            owned.files.write("program.json", data)
            with pytest.raises(CheckpointError, match=r"program\.json is damaged: .* Restore it"):
                Checkpoint(owned.files).bind(PROGRAM)
                pytest.fail(how)


def test_every_damage_of_the_description_is_mended_if_the_program_is_that_of_the_last_epoch(owned):
    owned.commit(Manifest(0, {}))
    good = owned.files.read("program.json")
    other = seal("program", "another", unseal(good, "program", None, ""))
    changed = description(source().filter(bool).process(Other(), by="k", name="other"))
    for how, data in {**damages(good, other), "deleted": None}.items():
        if data is None:
            owned.files.delete("program.json")
        else:
            owned.files.write("program.json", data)
        with pytest.raises(CheckpointError, match=r"program\.json is damaged"):
            Checkpoint(owned.files).check(changed)
            pytest.fail(how)
        assert Checkpoint(owned.files).check(PROGRAM) == [], how
    again = another(owned)
    assert again.query == owned.query and unseal(again.files.read("program.json"), "program", owned.query, "")


def test_an_older_description_is_noticed(owned):
    old = owned.files.read("program.json")
    owned.commit(Manifest(0, {}))
    changed = description(source().filter(bool).process(Sum(), by="k", name="sum").process(Other(), by="k", name="o"))
    second = Checkpoint(owned.files)
    second.bind(changed)
    Checkpoint(owned.files).check(PROGRAM, allow_state_loss=True)  # no epoch has run with the new one
    second.commit(Manifest(1, {}))
    owned.files.write("program.json", old)
    with pytest.raises(CheckpointError, match="older than the last epoch"):
        Checkpoint(owned.files).check(PROGRAM)
    assert Checkpoint(owned.files).check(changed) == []


# -- files -------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_whole_does_not_appear(tmp_path):
    files = LocalFiles(str(tmp_path))
    files.write("a", b"old")
    with pytest.raises(TypeError):
        files.write("a", "text")  # type: ignore[arg-type]
    assert files.names("") == ["a"] and files.read("a") == b"old"


def test_what_is_not_there_reads_as_nothing(tmp_path):
    files = LocalFiles(str(tmp_path / "nowhere"))
    assert files.read("a") is None and files.names("b") == []
    files.delete("a")
