"""Bad programs and bad input: an error that names the operator and the line, and nothing is written."""

from pathlib import Path
from typing import NamedTuple

import pytest

import anabranch as ab
from anabranch import agg, delta, tumbling
from anabranch.errors import CheckpointError, InputError, OperatorError, ProgramError, SchemaError, StateError
from anabranch.testing import ParallelRun, run_parallel

HERE = Path(__file__).name


class Sum(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        yield (t.k, self.total)


def source(*rows: tuple) -> ab.Stream:
    return ab.from_rows(rows or [("a", 1), ("b", 2), ("a", 3)], "k string, x long", name="tap")


def line_of(text: str) -> int:
    """The line of this file with the mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, start=1) if line.endswith(f"# {text}")]
    return number


def nothing_was_committed(checkpoint: Path) -> bool:
    return not list(checkpoint.rglob("epochs/*.json"))


def fails_without_a_trace(stream: ab.Stream, checkpoint: Path, kind: type[Exception]) -> str:
    """Both ways of running fail, with the same error; the parallel one delivers and commits nothing."""
    with pytest.raises(kind) as alone:
        stream.run_sequential()
    run = ParallelRun(stream, str(checkpoint), channels=3)
    with pytest.raises(kind) as parallel:
        run.run_epochs()
    assert run.output == [] and run.progress == []
    assert nothing_was_committed(checkpoint)
    assert str(alone.value) == str(parallel.value).replace(", epoch 0", "")
    return str(parallel.value)


# -- unknown column ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attach",
    [
        lambda s: s.map(lambda t: (t.nope,), schema="y long", name="bad"),
        lambda s: s.filter(lambda t: t["nope"], name="bad"),
        lambda s: s.flat_map(lambda t: t.but(nope=1), schema="y long", name="bad"),
    ],
    ids=["attribute", "item", "but"],
)
def test_an_unknown_column_in_an_operator_names_operator_line_tuple_and_columns(attach, tmp_path):
    message = fails_without_a_trace(attach(source(("a", 1))), tmp_path, OperatorError)
    assert f"operator bad ({__file__}:" in message
    assert "no column 'nope'; columns: k, x" in message
    assert "for the tuple (k='a', x=1)" in message


def test_an_operator_that_raises_names_the_line_that_raised(tmp_path):
    def divide(t):
        return (t.x // 0,)  # divided here

    message = fails_without_a_trace(source(("a", 1)).map(divide, schema="y long", name="bad"), tmp_path, OperatorError)
    assert "ZeroDivisionError" in message and f"{__file__}:{line_of('divided here')}" in message


def test_a_later_stage_that_fails_names_its_own_operator(tmp_path):
    stream = source().process(Sum(), by="k", schema="k string, y long", name="sums")
    stream = stream.aggregate(by="y", window=tumbling(1), n=agg.count()).map(lambda t: 1 // 0, schema="z long")
    run = ParallelRun(stream, str(tmp_path), channels=3)
    with pytest.raises(OperatorError, match=rf"operator map \(.*{HERE}:\d+\), epoch 0: raised ZeroDivisionError"):
        run.run_epochs()
    assert run.output == [] and nothing_was_committed(tmp_path)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.aggregate(by="k", window=tumbling(2), n=agg.sum("nope")),
        lambda s: s.aggregate(by="k", window=tumbling(delta("nope", 2)), n=agg.count()),
    ],
)
def test_an_unknown_column_that_the_program_names_is_found_when_it_is_built(build):
    with pytest.raises(SchemaError, match=rf"aggregate at .*{HERE}:\d+: .*no column 'nope'; columns: k, x"):
        build(source())


# -- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "complaint"),
    [
        ("nope", "the key 'nope' is not a column; columns: k, x"),
        (["k", "nope"], "the key 'nope' is not a column; columns: k, x"),
        ([], "the key is empty"),
        (["k", "k"], "names a column twice"),
        ([3], "the key 3 is not a column"),
    ],
)
@pytest.mark.parametrize("method", ["process", "aggregate"])
def test_a_key_that_is_not_in_the_schema_is_found_when_the_program_is_built(by, complaint, method):
    with pytest.raises(SchemaError) as caught:
        if method == "process":
            source().process(Sum(), by=by, schema="k string, x long")  # process here
        else:
            source().aggregate(by=by, window=tumbling(2), n=agg.count())  # aggregate here
    assert f"{method} at {__file__}:{line_of(f'{method} here')}: " in str(caught.value)
    assert complaint in str(caught.value)


def test_a_column_that_cannot_be_a_key_is_told():
    stream = ab.from_rows([], "xs array<long>")
    with pytest.raises(SchemaError, match=rf"aggregate at .*{HERE}:\d+: the column 'xs' .*cannot be a key; use a"):
        stream.aggregate(by="xs", window=tumbling(2), n=agg.count())


# -- wrong types -------------------------------------------------------------------------------------------


class Wrong(ab.Operator):
    def process(self, t):
        yield (t.k, "three" if t.x == 3 else t.x)


@pytest.mark.parametrize(
    ("attach", "row"),
    [
        (lambda s: s.map(lambda t: (t.k, "three" if t.x == 3 else t.x), schema="k string, y long", name="bad"), "x=3"),
        (lambda s: s.process(Wrong(), by="k", schema="k string, y long", name="bad"), "x=3"),
        (lambda s: s.flat_map(lambda t: [(t.k, 1), "three"], schema="k string, y long", name="bad"), ""),
        (lambda s: s.map(lambda t: {"k": t.k}, schema="k string, y long", name="bad"), ""),
        (lambda s: s.map(lambda t: None, schema="k string, y long", name="bad"), ""),
    ],
    ids=["map", "process", "flat_map", "missing column", "nothing"],
)
def test_a_wrong_type_names_operator_line_column_and_tuple(attach, row, tmp_path):
    stream = attach(source(("a", 3)))
    message = fails_without_a_trace(stream, tmp_path, OperatorError)
    assert f"operator bad ({__file__}:" in message and "returned the wrong type" in message
    assert "y bigint" in message or "column 'y' is bigint" in message
    assert row in message and "for the tuple (k='a', x=3)" in message


def test_the_tuple_that_is_named_is_the_one_whose_result_was_wrong(tmp_path):
    stream = source(("a", 1), ("a", 2), ("a", 3), ("a", 4)).process(Wrong(), by="k", schema="k string, y long")
    assert "for the tuple (k='a', x=3)" in fails_without_a_trace(stream, tmp_path, OperatorError)


def test_an_error_has_its_parts_as_fields():
    with pytest.raises(OperatorError) as caught:
        run_parallel(source(("a", 3)).process(Wrong(), by="k", schema="k string, y long", name="bad"))
    assert caught.value.operator.startswith("bad (") and caught.value.row == "(k='a', x=3)"
    assert caught.value.epoch == 0


def test_the_epochs_before_the_failing_one_stay_and_are_not_run_again(tmp_path):
    rows = [("a", 1), ("a", 2), ("a", 3)]
    stream = ab.from_rows(rows, "k string, x long", rows_per_epoch=2).process(
        Wrong(), by="k", schema="k string, y long"
    )
    run = ParallelRun(stream, str(tmp_path))
    with pytest.raises(OperatorError, match="epoch 1"):
        run.run_epochs()
    assert run.output == [("a", 1), ("a", 2)]
    assert [path.name for path in tmp_path.rglob("epochs/*.json")] == ["000000000000.json"]


class Forgets(ab.Operator):
    def process(self, t):
        self.lost = t.x
        return t


class KeepsAnObject(ab.Operator):
    kept = ab.state(default=None)

    def process(self, t):
        self.kept = object()
        return t


def test_an_attribute_that_would_be_lost_is_refused_in_both_ways_of_running(tmp_path):
    stream = source().process(Forgets(), by="k")
    with pytest.raises(StateError, match=r"lost = ab.state\(default=…\)"):
        stream.run_sequential()
    with pytest.raises(ProgramError, match=r"operator Forgets \(.*:\d+\): .* assigns self.lost") as refused:
        ParallelRun(stream, str(tmp_path))
    assert "declare self.lost: ab.state(…)" in str(refused.value) and nothing_was_committed(tmp_path)


def test_state_that_cannot_be_kept_names_its_operator_and_nothing_is_committed(tmp_path):
    run = ParallelRun(source().process(KeepsAnObject(), by="k"), str(tmp_path))
    with pytest.raises(StateError, match=rf"operator KeepsAnObject \(.*{HERE}:\d+\): cannot keep a builtins.object"):
        run.run_epochs()
    assert run.output == [] and nothing_was_committed(tmp_path)


# -- rows that do not fit ----------------------------------------------------------------------------------


def test_a_row_of_the_wrong_type_names_the_source_and_the_row(tmp_path):
    stream = source(("a", 1), ("a", "b"))
    message = fails_without_a_trace(stream, tmp_path, InputError)
    assert f"source tap ({__file__}:" in message and "row 1 does not fit" in message and "column 'x'" in message


# -- the checkpoint of another program ---------------------------------------------------------------------


def test_the_checkpoint_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    run_parallel(source().process(Sum(), by="k", schema="k string, x long"), checkpoint=str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        CheckpointError, match=r"another program:\n  operator Sum: its key was \['k'\] and is now \['x'"
    ):
        run_parallel(source().process(Sum(), by=["x"], schema="k string, x long"), checkpoint=str(tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# -- schemas -----------------------------------------------------------------------------------------------


def compute(t):
    return (t.x, 2.0)


class Computes(ab.Operator):
    def process(self, t):
        yield (t.x, 2.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(compute),
        lambda s: s.flat_map(lambda t: [(1, 2.0)]),
        lambda s: s.process(Computes(), by="k"),
    ],
    ids=["map", "flat_map", "process"],
)
def test_a_missing_schema_shows_both_ways_to_give_one(build):
    with pytest.raises(SchemaError) as caught:
        build(source())
    message = str(caught.value)
    assert f"{__file__}:" in message and "schema='id long, value double'" in message
    assert "class Reading(NamedTuple)" in message and "-> " in message


class Odd(NamedTuple):
    x: complex


@pytest.mark.parametrize(
    "build",
    [
        lambda: source().map(compute, schema="y lng"),
        lambda: source().map(compute, schema=Odd),
        lambda: ab.from_rows([], "y lng"),
        lambda: ab.from_rows([], Odd),
    ],
)
def test_a_schema_that_cannot_be_read_names_the_line(build):
    with pytest.raises(SchemaError, match=rf"(map|from_rows) at .*{HERE}:\d+: "):
        build()


def test_an_annotation_that_no_column_holds_names_the_line():
    def odd(t) -> Odd: ...

    with pytest.raises(SchemaError, match=rf"map at .*{HERE}:\d+: the field 'x' of Odd"):
        source().map(odd)


@pytest.mark.parametrize("build", [lambda s: s.map(3), lambda s: s.filter(None), lambda s: s.flat_map("x")])
def test_what_is_no_function_is_refused_with_the_line(build):
    with pytest.raises(ProgramError, match=rf"at .*{HERE}:\d+: expected a function of one tuple, found"):
        build(source())


# -- running without what is needed ------------------------------------------------------------------------


def test_a_stream_without_a_session_says_how_to_get_one():
    with pytest.raises(ProgramError, match=r"ab\.session\(spark\)\.from_rows"):
        source().writeStream  # noqa: B018 - the access itself fails


def test_files_beside_the_package_are_the_users_own():
    """A project whose name begins like ours must not be taken for ours in errors."""
    from anabranch.program.graph import is_ours

    package = str(Path(ab.__file__).parent)
    assert is_ours(f"{package}/api/stream.py")
    assert not is_ours(f"{package}_tools/x.py") and not is_ours("/home/me/anabranch/programs.py")
