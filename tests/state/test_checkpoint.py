"""The driver's side of the checkpoint: manifests, and which program it belongs to."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.driver.runner import describe_program
from anabranch.engine.worker.tasks import Program
from anabranch.errors import CheckpointError
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.files import LocalFiles
from anabranch.state.layouts import Layouts
from anabranch.state.manifest_facts import AdaptationFacts, FedBack, ManifestFacts
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


def content(checkpoint: Checkpoint) -> list[str]:
    root = LocalFiles(checkpoint.files.root).path("")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# -- manifests ---------------------------------------------------------------------------------------------

names = st.sampled_from(["", "é", '"', "\n", "loop"])
remembered = st.dictionaries(names, st.integers(-(2**63), 2**63) | names | st.none(), max_size=3)
facts = st.builds(
    ManifestFacts,
    batch=st.integers(-1, 10**12),
    clock_ms=st.integers(0, 2**60),
    layouts=st.integers(1, 5).map(lambda channels: Layouts().started({"Sum": {"Sum": ("k",)}}, {"Sum": channels})),
    feedback=st.dictionaries(names, st.builds(FedBack, names, st.integers(0, 2**40)), max_size=2),
    adaptation=st.builds(AdaptationFacts, remembered, remembered, remembered),
)


@settings(max_examples=30)
@given(epoch=st.integers(0, 10**12 - 1), facts=facts)
def test_a_manifest_comes_back_from_its_bytes(epoch, facts):
    manifest = Manifest(epoch, {"Sum": [RECORD]}, facts)
    assert Manifest.from_bytes(manifest.to_bytes(), "m") == manifest


def test_before_the_first_epoch_there_is_an_empty_manifest(checkpoint):
    assert checkpoint.latest() == Manifest(-1, {})


def test_the_last_committed_epoch_is_the_latest(checkpoint):
    for epoch in range(12):
        checkpoint.commit(Manifest(epoch, {"Sum": [RECORD]}, ManifestFacts(batch=2)))
    assert checkpoint.latest() == Manifest(11, {"Sum": [RECORD]}, ManifestFacts(batch=2))


def test_only_so_many_manifests_are_kept(tmp_path):
    checkpoint = Checkpoint(LocalFiles(str(tmp_path)), kept=3)
    for epoch in range(7):
        checkpoint.begin(epoch, 1000)
        checkpoint.commit(Manifest(epoch, {}))
    assert [name for name in content(checkpoint) if name.endswith(".json")] == [
        f"epochs/{epoch:012d}.json" for epoch in (4, 5, 6)
    ]
    assert not (tmp_path / "epochs/000000000003.begun").exists()


def test_an_epoch_that_begins_again_has_the_time_it_had(checkpoint):
    assert checkpoint.begin(0, 1000) == 1000
    assert checkpoint.begin(0, 2000) == 1000
    assert checkpoint.begin(1, 2000) == 2000


def test_a_damaged_newest_manifest_means_that_its_epoch_runs_again(checkpoint):
    checkpoint.commit(Manifest(3, {"Sum": [RECORD]}))
    checkpoint.files.write("epochs/000000000004.json", b"{")
    assert checkpoint.latest().epoch == 3


def test_a_file_that_is_still_being_written_is_no_manifest(checkpoint):
    checkpoint.commit(Manifest(0, {}))
    checkpoint.files.write("epochs/_000000000001.json.123.tmp", b"{")
    assert checkpoint.latest().epoch == 0


GOOD = Manifest(3, {"Sum": [RECORD]}, ManifestFacts(batch=2)).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD[: len(GOOD) // 2],
        GOOD.replace(b"Sum", b"Sun"),
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        json.dumps({"format": 2, "checksum": 0, "manifest": {}}).encode(),
    ],
)
def test_a_damaged_manifest_is_refused_and_named(checkpoint, data):
    checkpoint.files.write("epochs/000000000003.json", data)
    with pytest.raises(CheckpointError, match=r"epochs/000000000003\.json is damaged"):
        checkpoint.latest()


def test_a_manifest_of_another_format_is_refused(checkpoint):
    checkpoint.files.write("epochs/000000000003.json", GOOD.replace(b'"format":2', b'"format":3'))
    with pytest.raises(CheckpointError, match="has the format 3; this version reads 2"):
        checkpoint.latest()


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


def description(stream: ab.Stream) -> dict:
    return describe_program(Program.of(stream.plan(), {}))


def source(schema: str = "k string, x long") -> ab.Stream:
    return ab.from_rows([], schema)


PROGRAM = description(source().filter(bool).process(Sum(), by="k", name="sum"))


def test_a_new_checkpoint_is_bound_and_the_same_program_may_return(checkpoint):
    checkpoint.bind(PROGRAM)
    before = checkpoint.files.read("program.json")
    checkpoint.bind(description(source().filter(bool).process(Sum(), by="k", name="sum")))
    assert content(checkpoint) == ["program.json"] and checkpoint.files.read("program.json") == before


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


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}"])
def test_a_damaged_description_is_refused_and_named(checkpoint, data):
    checkpoint.files.write("program.json", data)
    with pytest.raises(CheckpointError, match=r"program\.json is damaged"):
        checkpoint.bind(PROGRAM)


def test_a_description_of_another_format_is_refused(checkpoint):
    checkpoint.files.write("program.json", json.dumps({"format": 9, "program": PROGRAM}).encode())
    with pytest.raises(CheckpointError, match="has the format 9; this version reads 1"):
        checkpoint.bind(PROGRAM)


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
