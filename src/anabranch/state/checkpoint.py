"""The checkpoint as the driver sees it: the program's description and one manifest per epoch.

    <checkpointLocation>/anabranch/program.json               what the state belongs to
                                  /owners/000000000003.json   the third driver that opened it, and now its owner
                                  /epochs/000000000007.begun  the time of epoch 7, recorded when it began
                                  /epochs/000000000007.json   manifest of epoch 7: the commit point
                                  /feedback/…                 tuples on their way back into the program
                                  /state/<operator>/…         segments

A manifest lists all the segments that make up the state after its epoch. It is written last and appears
whole, so an epoch either happened or did not. It is created and never replaced: should two drivers run an epoch, the
first that commits it has. All but the segments, which manifests describe, are in envelopes (envelope.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

from anabranch.errors import CheckpointError, EpochTaken
from anabranch.faults import reach
from anabranch.state.described_program import DescribedProgram
from anabranch.state.envelope import damaged, opened, seal, to_json, unseal
from anabranch.state.files import Files, remove_passing
from anabranch.state.lineage import files_of
from anabranch.state.manifest_facts import ManifestFacts, TableFact, tables_of_fields, tables_to_fields
from anabranch.state.ownership import DIRECTORY as OWNERS
from anabranch.state.ownership import Ownership
from anabranch.state.program_changes import ProgramChange, compare, new_names
from anabranch.state.records import SegmentRecord

_log = logging.getLogger("anabranch")

PROGRAM = "program.json"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What there is after an epoch.

    Attributes
    ----------
    epoch : int
        The epoch that was committed; -1 before the first.
    segments : mapping
        Operator → records of its segments, newest first.
    facts : ManifestFacts
        What the epoch was run with, and what the next one needs.
    owner : int
        Which driver committed it.
    program : str
        A digest of the description of the program that ran it.
    """

    epoch: int
    segments: Mapping[str, Sequence[SegmentRecord]]
    facts: ManifestFacts = dataclasses.field(default_factory=ManifestFacts)
    owner: int = dataclasses.field(default=0, compare=False)
    program: str = dataclasses.field(default="", compare=False)

    def to_bytes(self, query: str) -> bytes:
        segments = {operator: [record.to_fields() for record in records] for operator, records in self.segments.items()}
        fields = {"epoch": self.epoch, "facts": self.facts.to_fields(), "owner": self.owner, "program": self.program}
        return seal("manifest", query, to_json({**fields, "segments": segments}).encode())

    @classmethod
    def from_bytes(cls, data: bytes, query: str | None, name: str) -> Manifest:
        content = unseal(data, "manifest", query, name)
        try:
            fields = json.loads(content)
            segments = {
                operator: [SegmentRecord.of_fields(each) for each in records]
                for operator, records in fields.pop("segments").items()
            }
            return cls(segments=segments, facts=ManifestFacts.of_fields(fields.pop("facts")), **fields)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise damaged(name, problem) from None


@dataclasses.dataclass(frozen=True)
class EpochBegun:
    """What is recorded when an epoch first begins."""

    clock_ms: int
    """Its time."""
    drain: bool
    """It has no input but what was fed back."""
    ending: bool = False
    """The input has ended: all time comes in it."""
    tables: Mapping[str, TableFact] = dataclasses.field(default_factory=dict)
    """The versions of changing tables that it has, by operator."""


class Checkpoint:
    """The checkpoint of one query, written by one driver at a time.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.
    kept : int
        How many manifests are kept, and with them the segments they name: so far back a damaged compaction can be
        replaced by what it was made of.
    """

    def __init__(self, files: Files, kept: int = 10) -> None:
        self.files = files
        self.kept = max(2, kept)
        # Segments that manifests stopped naming, by the epoch in which they did.
        self._retired: dict[int, set[str]] = {}
        self._named: set[str] = set()
        self._tables: dict[int, set[str]] = {}  # versions of tables that manifests name, by epoch
        self._query: str | None = None
        self._program = ""
        self._owner: Ownership | None = None
        # What was found damaged and could be done without, for now.
        self.damage: list[str] = []
        self._again = -1

    # -- the program and the owner ----------------------------------------------------------------------------

    @property
    def query(self) -> str | None:
        """The query's id, made when the checkpoint was new; None if it still is.

        It is in every file. If the program's description cannot be read, or is another query's, the manifests know it.
        """
        if self._query is None:
            try:
                described = self._described()
            except CheckpointError:
                described = None
            known = Counter(filter(None, map(self._id_of, self._manifests())))
            if described is not None and (described[0] in known or not known):
                return described[0]
            return known.most_common(1)[0][0] if known else None
        return self._query

    @property
    def owner(self) -> Ownership:
        """This driver's right to write here, which `bind` took."""
        assert self._owner is not None, "a checkpoint is bound before it is written to"
        return self._owner

    def check(self, description: DescribedProgram, allow_state_loss: bool = False) -> list[str]:
        """Make sure that the checkpoint is new, or that the program can go on from it. Writes nothing.

        Returns what changed, in words, if it can; raises CheckpointError if it cannot.
        """
        query, committed = self.query, self.latest().program
        now = digest_of(description)
        try:
            before = self._program_of(query, committed)
        except CheckpointError as problem:
            if committed != now:
                raise
            # The manifest was made by this very program, so nothing is lost.
            _log.warning("%s The program that is started is the one that the last epoch ran with: going on.", problem)
            return []
        if before is None:
            return []
        names = new_names(description.operators, (each.name for each in before.operators))
        changes = [ProgramChange(f"operator {old} is now called {name}", "fine") for old, name in names.items()]
        changes += compare(before.renamed(names), description)
        bad = {"refused"} if allow_state_loss else {"refused", "loses state"}
        refused = [change.text for change in changes if change.effect in bad]
        if refused:
            hint = "Use another checkpointLocation, or run the program that the checkpoint was written by."
            if all(change.effect != "refused" for change in changes):
                hint += (
                    " To keep the state, say what became of it: .was('…') behind an operator with another name, "
                    "ab.state(was='…') for a field, process(…, version=2, migrate=…) for what it means. To go on "
                    "without it, set .option('allowStateLoss', True)."
                )
            raise CheckpointError(
                f"the checkpoint {self.files.root} belongs to another program:\n"
                + "\n".join(f"  {line}" for line in refused)
                + f"\n{hint}"
            )
        return [change.text for change in changes]

    def _program_of(self, query: str | None, committed: str) -> DescribedProgram | None:
        """The description of the program the checkpoint is tied to; None if it is new."""
        found = self._described()
        place = f"{self.files.root}/{PROGRAM}"
        if found is None:
            if query is None:
                return None
            raise damaged(place, "it is missing")
        owner, program, before = found
        if owner != query:
            raise damaged(place, f"it belongs to another query ({owner}; this one is {query})")
        if committed and committed not in (digest_of(program), before):
            raise damaged(place, "it is older than the last epoch")
        return program

    def _described(self) -> tuple[str, DescribedProgram, str] | None:
        """The query, its program, and the digest of the one before."""
        found = self.files.read(PROGRAM)
        if found is None:
            return None
        place = f"{self.files.root}/{PROGRAM}"
        query, content = opened(found, "program", None, place)
        try:
            body = json.loads(content)
            return query, DescribedProgram.of_fields(body["program"]), str(body["before"])
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise damaged(place, problem) from None

    def bind(self, description: DescribedProgram, allow_state_loss: bool = False) -> list[str]:
        """Tie the checkpoint to a program, and become its owner; returns and raises as `check` does."""
        changes = self.check(description, allow_state_loss)
        if self._owner is None:
            if self.query is None and not self.files.create(PROGRAM, _described_as(description, "", str(uuid.uuid4()))):
                changes = self.check(description, allow_state_loss)  # another driver was quicker, and gave it its id
            self._take()
        assert self._query is not None
        self._program = digest_of(description)
        data = _described_as(description, self.latest().program, self._query)
        if self.files.read(PROGRAM) != data:
            self.owner.check()
            self.files.write(PROGRAM, data)
        return changes

    def _take(self) -> None:
        """Become the owner. What drivers before this one were writing when they died is removed."""
        self._query = self.query
        assert self._query is not None
        self._owner = Ownership.take(self.files, self._query, self.latest().owner)
        inner = [f"{each}/{name}" for each in ("state", "sources") for name in self.files.names(each)]
        for directory in ["", "epochs", "feedback", OWNERS, *inner]:
            remove_passing(self.files, directory)

    def program(self) -> DescribedProgram | None:
        """The description of the program that the checkpoint is tied to; None if it is new."""
        found = self._described()
        return None if found is None else found[1]

    def operators(self) -> set[str]:
        """The names of the operators of the program that the checkpoint is tied to; none if it is new."""
        try:
            return {each.name for each in (self.program() or DescribedProgram()).operators}
        except CheckpointError:
            return set()  # `check` says what is wrong with it

    # -- epochs ---------------------------------------------------------------------------------------------

    def latest(self) -> Manifest:
        """The last committed epoch whose manifest can be read.

        If the newest is damaged the one before it is taken: the epoch then runs again, from the same input and
        the same state, and gives the same. Should Spark have gone on already, the runner notices the gap.
        """
        problem: CheckpointError | None = None
        self.damage = []
        query = self.query
        for name in reversed(self._manifests()):
            try:
                manifest = self._read(name, query)
                self._named = files_of(manifest.segments)
                return manifest
            except CheckpointError as found:
                self.damage.append(str(found))
                problem = problem or found
        if problem is not None:
            raise problem
        return Manifest(-1, {})

    def version(self, epoch: int) -> Manifest | None:
        """The manifest of an epoch; None if it is not kept."""
        name = f"{epoch:012d}.json"
        return self._read(name, self.query) if name in self._manifests() else None

    def _manifests(self) -> list[str]:
        return [name for name in self.files.names("epochs") if name.endswith(".json") and name[0].isdigit()]

    def _read(self, name: str, query: str | None) -> Manifest:
        place = f"{self.files.root}/epochs/{name}"
        data = self.files.read(f"epochs/{name}")
        if data is None:
            raise damaged(place, "it is missing")
        manifest = Manifest.from_bytes(data, query, place)
        if name != f"{manifest.epoch:012d}.json":
            raise damaged(place, f"it is the manifest of epoch {manifest.epoch}")
        return manifest

    def _id_of(self, name: str) -> str | None:
        try:
            return opened(self.files.read(f"epochs/{name}") or b"", "manifest", None, name)[0]
        except CheckpointError:
            return None

    def batch_digest(self, number: int) -> str | None:
        """The digest of an input batch, if one of the manifests that are kept committed it."""
        for name in reversed(self._manifests()):
            try:
                facts = self._read(name, self.query).facts
            except CheckpointError:
                continue
            if facts.batch == number:
                return facts.batch_digest
        return None

    def begun(self, epoch: int) -> EpochBegun | None:
        """What was recorded when an epoch first began."""
        name = f"epochs/{epoch:012d}.begun"
        data = self.files.read(name)
        if data is None:
            return None
        place = f"{self.files.root}/{name}"
        try:
            found = json.loads(unseal(data, "epoch begun", self.query, place))
            if found["epoch"] != epoch:
                raise damaged(place, f"it is that of epoch {found['epoch']}")
            tables = tables_of_fields(found.get("tables", {}))
            return EpochBegun(int(found["clock_ms"]), bool(found["drain"]), bool(found.get("ending")), tables)
        except CheckpointError as problem:
            # The epoch is not committed, so nothing that counts has depended on it: it begins anew.
            _log.warning("%s The epoch was not committed and begins anew, at another time.", problem)
            return None

    def begin(
        self,
        epoch: int,
        clock_ms: int,
        drain: bool = False,
        ending: bool = False,
        tables: Mapping[str, TableFact] | None = None,
    ) -> EpochBegun:
        """What an epoch is run with: what was recorded when it first began, else this, which is recorded now.

        An epoch that runs again must see the time, and the tables, it saw before, or what expires would differ.
        """
        name = f"epochs/{epoch:012d}.begun"
        found = self.begun(epoch)
        self._again = epoch
        if found is None:
            assert self._query is not None
            new = EpochBegun(clock_ms, drain, ending, tables or {})
            fields = {"epoch": epoch, "clock_ms": clock_ms, "drain": drain, "ending": ending}
            body = to_json(fields | ({"tables": tables_to_fields(tables)} if tables else {})).encode()
            data = seal("epoch begun", self._query, body)
            if self.files.create(name, data):
                found, self._again = new, -1
            else:
                found = self.begun(epoch)  # by another driver, just now
                if found is None:
                    self.files.write(name, data)  # over one that is damaged
                    found = new
        # Only after this: whoever takes over from now on finds the file, and runs the same epoch.
        self.owner.check()
        return found

    def is_again(self, epoch: int) -> bool:
        """Whether an epoch had been begun before this driver began it."""
        return epoch == self._again

    def is_committed(self, epoch: int) -> bool:
        """Whether an epoch is committed, by whomever."""
        return any(int(name.removesuffix(".json")) >= epoch for name in self._manifests())

    def commit(self, manifest: Manifest) -> None:
        """Publish an epoch; then remove what is too old to be needed."""
        assert self._query is not None
        self.owner.check()
        reach("commit checked", epoch=manifest.epoch)
        complete = dataclasses.replace(manifest, owner=self.owner.token, program=self._program)
        name, data = f"{manifest.epoch:012d}.json", complete.to_bytes(self._query)
        if not self.files.create(f"epochs/{name}", data):
            self._replace(name, data)
        reach("manifest created", epoch=manifest.epoch)
        # A driver that takes over after this look finds the manifest. One that did before it may not have.
        self.owner.check()
        named = files_of(manifest.segments)
        self._retired[manifest.epoch] = self._named - named
        self._named = named
        old = manifest.epoch - self.kept
        for epoch in [each for each in self._retired if each <= old]:
            for segment in self._retired.pop(epoch):
                self.files.delete(f"state/{segment}")
        self._tables[manifest.epoch] = {fact.name for fact in manifest.facts.tables.values()}
        needed = set().union(*(names for epoch, names in self._tables.items() if epoch > old))
        for epoch in [each for each in self._tables if each <= old]:
            for table in self._tables.pop(epoch) - needed:
                self.files.delete(table)
        if old >= 0:
            self.files.delete(f"epochs/{old:012d}.json")
            self.files.delete(f"epochs/{old:012d}.begun")

    def _replace(self, name: str, data: bytes) -> None:
        """An epoch has a manifest already: of a driver that was frozen and woke up, or a damaged one."""
        try:
            there = self._read(name, self._query)
        except CheckpointError as problem:
            _log.warning("%s The epoch was run again.", problem)
        else:
            if there.owner != self.owner.token:
                self.owner.check()
                raise EpochTaken(
                    f"epoch {there.epoch} was committed by another driver (owner {there.owner} of the checkpoint "
                    f"{self.files.root}) while this one ran it. It is the same epoch: start the query again."
                )
        self.files.write(f"epochs/{name}", data)

    def clean(self) -> int:
        """Remove manifests that are too old, and what no manifest names, left by crashes; how many files there were.

        Segments of the epoch that comes next are left alone: a task of a driver that was killed a moment ago
        may still be writing. They are removed by a later start.
        """
        newest = self.latest().epoch
        removed = 0
        for name in self.files.names("epochs"):
            epoch = name.split(".")[0]
            if epoch.isdigit() and int(epoch) <= newest - self.kept:
                self.files.delete(f"epochs/{name}")
                removed += 1
        try:
            manifests = [self._read(name, self.query) for name in self._manifests()]
        except CheckpointError:  # it may name segments we do not know of: remove nothing
            return removed
        known = {f"state/{name}" for manifest in manifests for name in files_of(manifest.segments)}
        known |= {each.name for manifest in manifests for each in manifest.facts.feedback.values()}
        removed += self._clean_tables(manifests, newest)
        for directory in ["feedback", *(f"state/{operator}" for operator in self.files.names("state"))]:
            for name in self.files.names(directory):
                full = f"{directory}/{name}"
                epoch = name.split("-")[0]
                if full not in known and epoch.isdigit() and int(epoch) <= newest:
                    self.files.delete(full)
                    removed += 1
        return removed

    def _clean_tables(self, manifests: Sequence[Manifest], newest: int) -> int:
        """Remove versions of tables that neither a manifest names nor the epoch that comes next was begun with."""
        facts = [fact for manifest in manifests for fact in manifest.facts.tables.values()]
        begun = self.begun(newest + 1)
        known = {fact.name for fact in (*facts, *(begun.tables.values() if begun is not None else ()))}
        places = [f"tables/{each}" for each in self.files.names("tables")]
        old = [f"{place}/{name}" for place in places for name in self.files.names(place)]
        for name in (each for each in old if each not in known):
            self.files.delete(name)
        return sum(name not in known for name in old)


def _described_as(description: DescribedProgram, before: str, query: str) -> bytes:
    return seal("program", query, to_json({"program": description.to_fields(), "before": before}).encode())


def digest_of(description: DescribedProgram) -> str:
    """One short text for one program."""
    return hashlib.sha256(to_json(description.to_fields()).encode()).hexdigest()[:32]
