"""Conditions say of columns, and of what files tell of them, what Python says of each tuple."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.compiler.rewriting import conditions
from anabranch.compiler.rewriting.conditions import condition_of
from anabranch.engine.worker import condition_columns
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.condition_columns import held, known_for_all
from anabranch.engine.worker.late_columns import LateColumn
from anabranch.engine.worker.late_files import late_rows
from anabranch.engine.worker.needed_columns import Needed
from tests.compiler.condition_rules import (
    RULES,
    SCHEMA,
    TESTS,
    chance_of,
    columns_of,
    combination,
    condition,
    function_of,
    told,
)
from tests.engine.column_ways import EXAMPLES


def outcome_of(found, batch):
    """For each tuple what a condition says: True, False, or that it fails."""
    true, false, fails = conditions.combined(found, condition_columns._Asked(batch), lambda which: bool(which.any()))
    assert ((true.astype(int) + false + fails) == 1).all()
    return ["fails" if fails[at] else bool(true[at]) for at in range(len(batch))]


def check(text, columns):
    batch = ColumnBatch(SCHEMA, range(len(columns[0])), columns)
    expected = told(function_of(text), ColumnBatch(SCHEMA, range(len(columns[0])), columns).rows)
    assert outcome_of(condition(text), batch) == expected, text
    mask = held(condition(text), batch)
    assert (mask is None) == ("fails" in expected)
    assert mask is None or mask.tolist() == expected


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_says_is_what_python_says(rule):
    for at, text in enumerate(RULES[rule]):
        for seed in range(12):
            check(text, columns_of(chance_of(rule, at, seed), 40))


@pytest.mark.parametrize("seed", range(EXAMPLES * 4))
def test_so_it_is_with_what_is_put_together(seed):
    chance = chance_of("together", seed)
    check(combination(chance), columns_of(chance, 30))


OTHERS = [
    "t.n",
    "t.n + 1 < 3",
    "t.n < 1.5",
    "t.n == True",
    "t.n < 2**70",
    "t.x < 2**53 + 1",
    "t.x == nan",
    "t.s < 3",
    "t.at < LOCAL",
    "t.local < NOON",
    "t.at == DAY",
    "t.day == LOCAL",
    "t.s in {'a': 1}",
    "t.n in (1, 'a')",
    "t.s == '\\ud800'",
    "t.deep == None",
    "t.deep.a < 3",
    "t[-1] is None",
    "t.n is t.m",
    "t.n % 0 == 1",
    "t.n % -2 == 1",
    "t.x % 2 == 1",
    "len(t) == 3",
    "t.nothing == 3",
    "t['nothing'] == 3",
    "t[99] == 1",
    "unknown < t.n",
    "t is None",
    "t.flag < True",
    "t.n == t.x",
    "t.n == t.s",
    "t.deep['nothing'] is None",
    "(u := t.n) == 3",
    "t.n < t.deep",
    "t.s.lower() == 'a'",
    "t.n if t.flag else t.other",
    "t.at == BERLIN",
    "1 < 2",
    "None in t.deep",
    "t.deep == 12",
    "t.deep in (12,)",
    "t.deep['tags'] != 12",
]


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_is_called(text):
    assert isinstance(condition_of(function_of(text), SCHEMA), str)


@pytest.mark.parametrize("kind", ["decimal(10,2)", "decimal(38,0)", "binary", "array<int>", "map<string,int>"])
@pytest.mark.parametrize("text", ["t.v > 0", "t.v == 1.5", "t.v != 12", "t.v in (0, 12)", "t.v == DAY", "t.v == 'a'"])
def test_columns_of_kinds_that_no_rule_has_are_left_to_python(kind, text):
    schema = ab.from_rows([], f"v {kind}").schema
    assert isinstance(condition_of(function_of(text), schema), str)


def test_names_are_what_they_are_when_a_batch_comes():
    limit = 2
    function = lambda t: t.n < limit  # noqa: E731
    schema = ab.from_rows([], "n long").schema
    batch = ColumnBatch(schema, range(4), [pa.array([0, 1, 2, 3])])
    assert held(condition_of(function, schema), batch).tolist() == [True, True, False, False]
    limit = 1
    assert held(condition_of(function, schema), batch).tolist() == [True, False, False, False]
    limit = True
    assert isinstance(condition_of(function, schema), str)


def test_what_python_has_no_value_for_is_called():
    schema = ab.from_rows([], "s string, at timestamp, day date").schema
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xff"))
    for text, at, column in [
        ('t.s == "a"', 0, bad),
        ("t.at < NOON", 1, pa.array([2**62], pa.timestamp("us", tz="UTC"))),
        ("t.day < DAY", 2, pa.array([2**30], pa.date32())),
    ]:
        columns = [pa.nulls(1, kind) for kind in schema.arrow.types]
        columns[at] = column
        assert held(condition_of(function_of(text), schema), ColumnBatch(schema, range(1), columns)) is None


def written(tmp_path, columns, group_rows, **more):
    path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
    pq.write_table(pa.table(columns, schema=SCHEMA.arrow), path, row_group_size=group_rows, **more)
    return path


def late_batches(path, tested, rows_at_once=65_536):
    leaves = [
        leaf
        for field in SCHEMA.arrow
        for leaf in ([field.name] if field.name != "deep" else
                     ["deep.a", "deep.b", "deep.c", "deep.inner.v", "deep.inner.w", "deep.tags"])
    ]  # fmt: skip
    first = tuple(name for name in leaves if name in tested)
    late = tuple(name for name in leaves if name not in tested)
    wanted = Needed(SCHEMA.names, SCHEMA.arrow, frozenset(SCHEMA.names), first, late)
    file = pq.ParquetFile(path)
    for columns in late_rows(file, path, range(file.num_row_groups), wanted, rows_at_once):
        yield ColumnBatch(SCHEMA, range(len(columns[0])), columns)


@pytest.mark.parametrize("seed", range(EXAMPLES * 2))
def test_what_a_file_tells_of_its_rows_is_true_of_them(seed, tmp_path):
    chance = chance_of("facts", seed)
    columns = columns_of(chance, 20, spread=True, nulls=chance.choice([0.0, 0.0, 0.3, 1.0]))
    for batch in late_batches(written(tmp_path, columns, chance.choice([3, 7])), ("n",), 7):
        tests = [*TESTS, *(combination(chance) for _ in range(10))]
        known = {text: known_for_all(condition(text), batch) for text in tests}  # before anything is read
        rows = batch.rows
        for text in tests:
            assert known[text] is None or set(told(function_of(text), rows)) == {known[text]}, text


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_columns_that_are_read_late_are_the_same(seed, tmp_path):
    """In whatever order they, their fields, and parts of them are asked for."""
    chance = chance_of("late", seed)
    columns = columns_of(chance, chance.choice([0, 1, 50]))
    path = written(tmp_path, columns, chance.choice([3, 17, 100]))
    tested = chance.sample(["n", "s", "deep.a", "deep.inner.v", "deep.tags", "day"], 3)
    at_once, start = chance.choice([4, 11, 100]), 0
    batches = list(late_batches(path, tested, at_once))
    assert sum(map(len, batches)) == len(columns[0])
    starts = [sum(map(len, batches[:at])) for at in range(len(batches))]
    for at in chance.sample(range(len(batches)), len(batches)):
        batch, start = batches[at], starts[at]
        expected = ColumnBatch(SCHEMA, range(len(batch)), [column.slice(start, len(batch)) for column in columns])
        for _ in range(chance.randint(0, 2)):
            mask = np.array([chance.random() < 0.5 for _ in range(len(batch))], dtype=bool)
            batch, expected = batch.kept(mask), expected.kept(mask)
            first = chance.randint(0, len(batch))
            batch, expected = batch.part(first, len(batch)), expected.part(first, len(batch))
        batch = batch.apart() if chance.random() < 0.3 else batch
        for _ in range(4):
            place, inner = chance.choice([(0, ()), (15, ()), (15, ("inner",)), (15, ("a",)), (15, ("inner", "v"))])
            assert batch.nulls(place, inner).to_pylist() == expected.nulls(place, inner).to_pylist()
            if chance.random() < 0.5:
                found, wanted = batch.field(place, inner), expected.field(place, inner)
                assert found.type == wanted.type and repr(found.to_pylist()) == repr(wanted.to_pylist())
        assert repr(batch.rows) == repr(expected.rows)
        assert list(batch.positions) == list(expected.positions)
        assert [each.type for each in batch.arrays()] == SCHEMA.arrow.types


def test_what_nothing_is_left_of_is_not_read(tmp_path, monkeypatch):
    read = []
    original = pq.ParquetFile.iter_batches

    def noted(file, rows, groups, names, **more):
        read.append((tuple(groups), tuple(names)))
        return original(file, rows, groups, names, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    count = 30
    columns = [pa.nulls(count, kind) for kind in SCHEMA.arrow.types]
    columns[0] = pa.array([at // 10 * 2 for at in range(count)])
    path = written(tmp_path, columns, 10)

    def reads(text):
        read.clear()
        for batch in late_batches(path, ("n",), 10):
            left = batch.kept(held(condition(text), batch))
            if len(left):
                left.arrays()
        tested = [groups for groups, names in read if names == ("n",)]
        return tested, [groups for groups, names in read if names != ("n",)]

    assert reads("t.n == 2") == ([(1,)], [(1,)])  # which group it is, and that all of it is, its bounds say
    assert reads("t.n == 1") == ([], [])
    assert reads("t.n % 2 == 1") == ([(0,), (1,), (2,)], [])
    assert reads("t.n >= 4 and t.n % 2 == 0") == ([(2,)], [(2,)])


def test_bounds_of_writers_that_nobody_knows_are_not_believed(tmp_path, monkeypatch):
    from anabranch.engine.worker import late_files

    path = written(tmp_path, columns_of(chance_of("writer"), 5, nulls=0.0), 5)
    (batch,) = late_batches(path, ("n",))
    assert isinstance(batch._arrays[0], LateColumn) and not batch.facts(0, ()).may_be_null
    monkeypatch.setattr(late_files, "_TRUSTED", late_files.re.compile("nobody"))
    (batch,) = late_batches(path, ("n",))
    assert batch.facts(0, ()).may_be_null and batch.facts(0, ()).least is None


@pytest.mark.parametrize(
    ("text", "at", "column"),
    [
        ("t.day < DAY", 14, pa.array([2_932_897] * 3, pa.int32()).cast(pa.date32())),
        ("t.day > DAY", 14, pa.array([2_932_897] * 3, pa.int32()).cast(pa.date32())),
        ("t.at < NOON", 11, pa.array([253402300800000000] * 3, pa.int64()).cast(pa.timestamp("us", tz="UTC"))),
        ("t.at in (NOON,)", 11, pa.array([253402300800000000] * 3, pa.int64()).cast(pa.timestamp("us", tz="UTC"))),
    ],
)
def test_bounds_are_not_asked_where_python_has_no_value_for_them(tmp_path, text, at, column):
    """A time of the year 10000 fails the call for its tuple, however row groups are cut."""
    columns = [pa.nulls(3, kind) for kind in SCHEMA.arrow.types]
    columns[at] = column
    for batch in late_batches(written(tmp_path, columns, 1), (SCHEMA.names[at],)):
        assert held(condition(text), batch) is None
