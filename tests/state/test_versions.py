"""State across versions of a program: renamed operators and fields, migrations, classes that changed."""

import collections
import dataclasses
import enum
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import SequentialRun
from anabranch.engine.sequential_versions import go_on_from
from anabranch.errors import CheckpointError, OperatorError, ProgramError, StateError
from anabranch.program.state_fields import StateHistory
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun

EXAMPLES = int(os.environ.get("ANABRANCH_VERSIONS_EXAMPLES", "12"))
COLUMNS = "k long, at long, x double"
OUT = "k long, n long, x double"


class Euros(ab.Operator):
    """The first version."""

    count: int = ab.state(default=0)
    total: float = ab.state(default=0.0)
    seen: list = ab.state(factory=list)

    def process(self, t):
        self.count += 1
        self.total += t.x
        self.seen.append(t.at)
        yield (t.k, self.count, self.total)


class Cents(ab.Operator):
    """The second: one field has another name, one another meaning, one is new, one is gone."""

    number: int = ab.state(default=0)
    cents: int = ab.state(default=0)
    last: int = ab.state(default=-1)

    def process(self, t):
        self.number += 1
        self.cents += round(t.x * 100)
        yield (t.k, self.number, self.cents + self.last / 1000)
        self.last = t.at


def to_cents(state):
    return {"number": state["count"], "cents": round(state["total"] * 100), "last": state["seen"][-1]}


class Split(ab.Operator):
    """The third."""

    number: int = ab.state(default=0)
    parts: tuple = ab.state(default=(0, 0))

    def process(self, t):
        self.number += 1
        whole, rest = divmod(self.parts[0] * 100 + self.parts[1] + round(t.x * 100), 100)
        self.parts = (whole, rest)
        yield (t.k, self.number, whole + rest / 100)


def to_parts(state):
    return {"number": state["number"], "parts": divmod(state["cents"], 100)}


class EurosInTime(Euros):
    def process(self, t):
        self.timers.at(t.at + 4)
        return super().process(t)

    def on_timer(self, time):
        yield (-1, time, self.total)


class CentsInTime(Cents):
    def process(self, t):
        self.timers.at(t.at + 4)
        return super().process(t)

    def on_timer(self, time):
        yield (-1, time, float(self.cents))


def first(epochs, timed=False):
    operator = EurosInTime() if timed else Euros()
    return source(epochs).process(operator, by="k", schema=OUT, name="euros")


def second(epochs, timed=False):
    operator = CentsInTime() if timed else Cents()
    made = source(epochs).process(operator, by="k", schema=OUT, name="cents", version=2, migrate=to_cents)
    return made.was("older", "euros")


def third(epochs, timed=False):
    made = source(epochs).process(
        Split(), by="k", schema=OUT, name="split", version=3, migrate={1: to_cents, 2: to_parts}
    )
    return made.was("cents", "euros")


def source(epochs):
    return from_epochs(epochs, COLUMNS).event_time("at", lateness=2, name="time")


class Crash(BaseException):
    """The end of a driver."""


@st.composite
def inputs(draw):
    rows = st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(0, 400).map(lambda x: x / 4))
    return draw(st.lists(st.lists(rows, max_size=8), min_size=3, max_size=9))


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), epochs=inputs(), timed=st.booleans())
def test_versions_follow_one_another_as_on_one_thread_with_crashes_and_rescalings(
    tmp_path_factory, data, epochs, timed
):
    """Each version runs some epochs; keys that no tuple touches keep the version they have, also when they move."""
    checkpoint, written = str(tmp_path_factory.mktemp("checkpoint")), {}
    versions = [first, second] if timed else [first, second, third]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(epochs)), min_size=len(versions) - 1, max_size=2)))
    bounds = [0, *cuts[: len(versions) - 1], len(epochs)]
    points = ["segment written", "job done", "sink written", "commit checked", "manifest written", "epoch begun"]
    crashes = data.draw(st.lists(st.tuples(st.sampled_from(points), st.integers(0, len(epochs))), max_size=4))

    def die(point, facts):
        if (point, facts.get("epoch")) in crashes:
            crashes.remove((point, facts.get("epoch")))
            raise Crash

    faults.install(die)
    expected, before = [], None
    try:
        for make, start, stop in zip(versions, bounds, bounds[1:], strict=False):
            stream = make(epochs, timed)
            alone = SequentialRun(stream._node)
            if before is not None:
                go_on_from(before, alone)
            for epoch in epochs[start:stop]:
                alone.feed(epoch)
            expected += alone.output
            before = alone
            done = False
            while not done:
                run = ParallelRun(stream, checkpoint, channels=data.draw(st.integers(1, 4)), written=written)
                try:
                    if start < stop:
                        run.run_epochs(run.runner.epochs_done, stop - 1)
                    done = True
                except Crash:
                    continue
    finally:
        faults.install(None)
    assert run.output == expected


def test_a_key_is_migrated_once_and_read_so_by_those_who_look(tmp_path, monkeypatch):
    calls, step = collections.Counter(), StateHistory.migrated

    def counted(self, fields, version, operator, key):
        calls[key, version] += 1
        return step(self, fields, version, operator, key)

    monkeypatch.setattr(StateHistory, "migrated", counted)
    epochs = [[(1, 0, 1.5)], [(1, 1, 0.25), (2, 1, 1.0)], [(1, 2, 1.0)], [(1, 3, 1.0)]]
    ParallelRun(first(epochs), str(tmp_path)).run_epochs(0, 1)
    ParallelRun(second(epochs), str(tmp_path), seed=1).run_epochs(2)
    assert calls == {(1, 1): 1}
    reader = CheckpointReader(LocalFiles(str(tmp_path / "anabranch")))
    found = {name: value for name, value in reader.value("cents", 1).items() if value is not None}
    assert found == {"number": 4, "cents": 375, "last": 3}
    assert reader.value("cents", 2)["total"] == 1.0  # nobody has read it yet


class Renamed(ab.Operator):
    n: int = ab.state(default=0, was=("older", "count"))
    total: float = ab.state(default=0.0)
    seen: list = ab.state(factory=list)

    def process(self, t):
        self.n += 1
        yield (t.k, self.n, self.total)


def test_a_field_that_was_renamed_is_found_again_also_when_it_is_merged(tmp_path):
    epochs = [[(k, n, 1.0) for k in range(4)] for n in range(9)]
    ParallelRun(first(epochs), str(tmp_path), channels=2).run_epochs(0, 3)
    stream = source(epochs).process(Renamed(), by="k", schema=OUT, name="euros")
    run = ParallelRun(stream, str(tmp_path), channels=3)
    assert "operator euros: its state count is now called n" in run.changes
    run.run_epochs(4)
    assert [row.n for row in run.output][-4:] == [9] * 4
    reader = CheckpointReader(LocalFiles(str(tmp_path / "anabranch")))
    assert reader.value("euros", 3) == {"n": 9, "total": 4.0, "seen": [0, 1, 2, 3]}


def test_what_cannot_be_read_is_refused_before_anything_is_written(tmp_path):
    epochs = [[(1, 0, 1.5), (2, 0, 1.5)], [(1, 1, 0.25)]]
    ParallelRun(first(epochs), str(tmp_path)).run_epochs(0, 0)
    before = sorted(str(file) for file in tmp_path.rglob("*"))

    def refused(match, operator, **more):
        with pytest.raises(CheckpointError, match=match):
            ParallelRun(source(epochs).process(operator, by="k", schema=OUT, name="euros", **more), str(tmp_path))

    refused(r"nothing leads from 1 to 2: add migrate=\{1: function\}", Cents(), version=2)
    refused("nothing leads from 2 to 3", Split(), version=3, migrate={1: to_cents})
    refused(r"no longer has count, total, seen(.|\n)*ab.state\(was='…'\)", Cents())
    with pytest.raises(CheckpointError, match=r"operator euros .* would be lost(.|\n)*\.was\('…'\)"):
        ParallelRun(source(epochs).process(Euros(), by="k", schema=OUT, name="other"), str(tmp_path))
    assert sorted(str(file) for file in tmp_path.rglob("*")) == before
    ParallelRun(second(epochs), str(tmp_path)).run_epochs(1)
    with pytest.raises(CheckpointError, match="has version 2, and the program has version 1"):
        ParallelRun(source(epochs).process(Cents(), by="k", schema=OUT, name="cents"), str(tmp_path))
    # One key is still of the first version.
    with pytest.raises(CheckpointError, match=r"keys have version 1 .* nothing leads from 1 to 2"):
        late = source(epochs).process(Split(), by="k", schema=OUT, name="cents", version=3, migrate=to_parts)
        ParallelRun(late, str(tmp_path))


def test_a_migration_that_fails_names_the_key_and_can_be_mended(tmp_path):
    epochs = [[(1, 0, 1.5)], [(1, 1, 0.25)]]
    ParallelRun(first(epochs), str(tmp_path)).run_epochs(0, 0)

    def run(migrate):
        made = source(epochs).process(Cents(), by="k", schema=OUT, name="euros", version=2, migrate=migrate)
        found = ParallelRun(made, str(tmp_path))
        found.run_epochs(1)
        return found.output

    with pytest.raises((StateError, OperatorError), match=r"key 1 from version 1 to 2 raised KeyError: 'sum'"):
        run(lambda state: {"number": state["sum"]})
    with pytest.raises((StateError, OperatorError), match=r"gave total .*does not declare"):
        run(lambda state: {"total": state["total"]})
    with pytest.raises((StateError, OperatorError), match="expected a dict"):
        run(lambda state: None)
    assert run(to_cents) == [(1, 2, 175.0)]


def test_what_is_said_wrongly_is_refused_when_the_program_is_built():
    stream = from_epochs([], COLUMNS)
    for more, match in [
        ({"version": 0}, "from 1 on"),
        ({"migrate": to_cents}, "version=2"),
        ({"version": 2, "migrate": {2: to_cents}}, "from version 2"),
        ({"version": 2, "migrate": 7}, "expected a function"),
    ]:
        with pytest.raises(ProgramError, match=match):
            stream.process(Cents(), by="k", schema=OUT, **more)
    with pytest.raises(ProgramError, match="declared state"):
        stream.process(lambda t: t, schema=OUT, version=2)
    with pytest.raises(ProgramError, match="names that the operator had"):
        stream.was()

    class Both(ab.Operator):
        a: int = ab.state(default=0, was="b")
        b: int = ab.state(default=0)

        def process(self, t):
            yield t

    with pytest.raises(ProgramError, match="declares b itself"):
        stream.process(Both(), by="k", schema=COLUMNS)


def classes_of(version):
    """The classes of the program: as `version` has them, always under the same names."""

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    if version == "without blue":

        class Colour(enum.Enum):
            RED = 1

    if version == "other fields":

        @dataclasses.dataclass
        class Thing:
            x: float
            colour: object
            more: int = 7

    elif version == "needs more":

        @dataclasses.dataclass
        class Thing:
            more: int

    else:

        @dataclasses.dataclass
        class Thing:
            x: float
            colour: object
            gone: str = "gone"

    class Keeping(ab.Operator):
        thing: Thing = ab.state(default=None)

        def process(self, t):
            if self.thing is None:
                self.thing = Thing(t.x, Colour.BLUE)
            yield (t.k, len(vars(self.thing)), getattr(self.thing, "more", 0) + self.thing.x)

    class Bare(ab.Operator):
        thing: object = ab.state(default=None)

        def process(self, t):
            yield (t.k, 0, self.thing)

    return Bare() if version == "no class" else Keeping()


def test_classes_of_values_may_gain_and_lose_fields_and_what_cannot_be_made_is_refused_at_the_start(tmp_path):
    epochs = [[(1, 0, 1.5)], [(1, 1, 2.5)], [(1, 1, 3.5)]]

    def stream(classes, **more):
        return from_epochs(epochs, COLUMNS).process(classes_of(classes), by="k", schema=OUT, name="keeping", **more)

    ParallelRun(stream("first"), str(tmp_path)).run_epochs(0, 0)
    with pytest.raises(CheckpointError, match=r"Colour.BLUE, which the enumeration no longer has"):
        ParallelRun(stream("without blue"), str(tmp_path))
    with pytest.raises(CheckpointError, match=r"the class now needs more. Give new fields a default"):
        ParallelRun(stream("needs more"), str(tmp_path))
    with pytest.raises(CheckpointError, match=r"a class that the operator's code does not name"):
        ParallelRun(stream("no class"), str(tmp_path))
    run = ParallelRun(stream("other fields"), str(tmp_path))
    run.run_epochs(1, 1)
    assert run.output == [(1, 3, 8.5)]
    # A migration gets what cannot be made as data.
    run = ParallelRun(stream("no class", version=2, migrate=lambda s: {"thing": s["thing"]["x"]}), str(tmp_path))
    run.run_epochs(2)
    assert run.output == [(1, 0, 1.5)]
