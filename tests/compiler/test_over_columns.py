"""Functions of a tuple, rewritten as functions of columns: the same output, the same error, for random functions."""

import copy
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.compiler.rewriting.over_columns import over_columns
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.batches import BatchSteps, Keeper
from anabranch.errors import AnabranchError
from anabranch.program.schema import Schema
from tests.programs import exact

COLUMNS = (
    "a long, b double, s string, n struct<x: long, y: string, z: array<long>, w: struct<v: double>>, l array<long>"
)
FLAT_AND_NESTED = (
    *COLUMNS.split(", ")[:3],
    COLUMNS[COLUMNS.index("n struct") : COLUMNS.index(", l ")],
    "l array<long>",
)
KINDS = ("long", "double", "string", "boolean", "array<long>", "struct<x: long>")
FUNCTIONS = int(os.environ.get("ANABRANCH_FUNCTIONS", 400))


class Writer:
    """Random expressions over the tuple, typed loosely: many fit, some raise."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def expression(self, kind: str, depth: int = 2) -> str:
        pick = self._chance.choice
        if depth and self._chance.random() < 0.15:
            test, one, other = self.test(depth - 1), self.expression(kind, depth - 1), self.expression(kind, depth - 1)
            return f"({one} if {test} else {other})"
        if kind == "long":
            leaf = pick(
                ["t.a", "t.a", 't["a"]', "t[0]", "7", 't.n["x"]', "len(t.s)", "OUTSIDE", "enclosed", "len(t.l)"]
            )
            if not depth or self._chance.random() < 0.4:
                return leaf
            return pick(
                [
                    f"({leaf} {pick('+-*')} {self.expression('long', depth - 1)})",
                    f"(lambda x: x + t.a)({leaf})",
                    f"sum(x for x in (t.a, {leaf}))",
                    f"(q := {leaf}) + q",
                    f"max({leaf}, {self.expression('long', depth - 1)})",
                    f"{leaf} // t.a",
                    "next(iter(t.l))",
                    "next(iter([]))",
                ]
            )
        if kind == "double":
            return pick(
                ["t.b", "t.b * 2", 't.n["w"]["v"]', "t.a / 3", "t.b / t.a", f"float({self.expression('long', 0)})"]
            )
        if kind == "string":
            return pick(["t.s", "t.s.upper()", 't.n["y"]', "f'{t.a}-{t.s}'", "str(t.n)", "t.s[:2]", "repr(t.l)"])
        if kind == "boolean":
            return self.test(depth)
        if kind == "array<long>":
            return pick(["t.l", "[t.a]", 't.n["z"]', "sorted(t.l)"])
        return pick(["{'x': t.a}", "None", '{"x": t.n["x"]}'])

    def test(self, depth: int) -> str:
        leaf = self._chance.choice(
            [
                "t.a > 3",
                "t.n is not None",
                "t.n is None",
                "t.s == 'ab'",
                "t.l",
                "t.n",
                "t.b",
                "t.l is None",
                't.n["x"] > 1',
            ]
        )
        if depth and self._chance.random() < 0.4:
            return f"({leaf} {self._chance.choice(['and', 'or'])} {self.test(depth - 1)})"
        return f"not {leaf}" if self._chance.random() < 0.2 else leaf

    def function(self, name: str) -> tuple[str, str | None]:
        """The text of a function, and the columns it gives; None if it is a filter."""
        kinds = [self._chance.choice(KINDS) for _ in range(self._chance.randint(1, 3))]
        columns = None if self._chance.random() < 0.3 else ", ".join(f"c{at} {k}" for at, k in enumerate(kinds))
        if columns is None:
            made = self.test(2)
        elif self._chance.random() < 0.2:
            columns = COLUMNS if self._chance.random() < 0.8 else ", ".join(reversed(FLAT_AND_NESTED))
            named = self._chance.sample([("a", "long"), ("b", "double"), ("s", "string")], self._chance.randint(0, 3))
            made = "t.but(" + ", ".join(f"{name}={self.expression(kind)}" for name, kind in named) + ")"
        elif self._chance.random() < 0.4:
            pairs = [f'"c{at}": {self.expression(kind)}' for at, kind in enumerate(kinds)]
            self._chance.shuffle(pairs)
            made = "{" + ", ".join(pairs) + "}"
        else:
            made = "(" + "".join(f"{self.expression(kind)}, " for kind in kinds) + ")"
        if self._chance.random() < 0.5:
            return f"def made(enclosed):\n    return lambda t: {made}\n{name} = made(5)\n", columns
        other = made if self._chance.random() < 0.5 else self.test(1) if columns is None else made
        ending = "" if self._chance.random() < 0.1 else f"    return {made}\n"
        changing = self._chance.choice(["", "", "    t.l.append(1)\n", "    x = t.a\n"])
        choosing = f"    if {self.test(1)}:\n        return {other}\n"
        return f"enclosed = 5\ndef {name}(t):\n    'says what'\n{changing}{choosing}{ending}", columns


def table(chance: random.Random, nulls: bool) -> pa.Table:
    def maybe(value: object) -> object:
        return None if nulls and chance.random() < 0.15 else value

    def struct() -> dict:
        words = chance.choice(["", "ab", "xyz"])
        z = maybe([chance.randrange(4) for _ in range(chance.randrange(3))])
        return {"x": maybe(chance.randrange(-2, 5)), "y": maybe(words), "z": z, "w": maybe({"v": chance.random()})}

    rows = [
        (
            maybe(chance.randrange(-2, 9)),
            maybe(chance.choice([0.0, -0.0, 1.5, float("nan")])),
            maybe(chance.choice(["", "ab", "ünd"])),
            maybe(struct()),
            maybe([chance.randrange(5) for _ in range(chance.randrange(3))]),
        )
        for _ in range(chance.randrange(1, 7))
    ]
    schema = Schema.of(COLUMNS)
    return pa.table(schema.arrays(list(zip(*rows, strict=True))), schema.arrow)


def outcome(stream: ab.Stream, batch: Batch) -> object:
    """What a step makes of a batch: values by column, as Arrow would send them, or the error."""
    node = stream._node
    try:
        made = BatchSteps({}, 3).step(node)(batch, node)
    except AnabranchError as error:
        return str(error)
    arrays = made.arrays()
    return list(made.positions), [array.type for array in arrays], exact(node.schema.rows(arrays))


def functions(place: Path, count: int, seed: int) -> list[tuple[object, str | None]]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        text, columns = Writer(chance).function(f"function{number}")
        path = place / f"f{number}.py"
        path.write_text("OUTSIDE = 11\n" + text)
        names: dict = {}
        exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
        made.append((names[f"function{number}"], columns))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_a_rewritten_function_does_what_it_did(tmp_path, seed):
    chance = random.Random(seed)
    rewritten = with_fields = 0
    for function, columns in functions(tmp_path, FUNCTIONS // 4, seed):
        source = ab.from_rows([], COLUMNS)
        stream = source.filter(function) if columns is None else source.map(function, schema=columns)
        outputs = None if columns is None else stream.schema
        found = over_columns(function, source.schema, outputs)
        rewritten += found is not None
        with_fields += found is not None and bool(found.structs)
        for nulls in (False, True):
            given = table(chance, nulls)
            rows = copy.deepcopy(source.schema.rows(given.columns))
            places = list(range(10, 10 + len(rows)))
            plain = outcome(stream, Batch(source.schema, places, rows))
            arrays = [column.combine_chunks() for column in given.columns]
            found_there = outcome(stream, ColumnBatch(source.schema, places, arrays))
            if isinstance(plain, str) and not Keeper(stream.schema).tuples_last:
                # What one row gives or what the next one raises: retracing finds which was first.
                assert isinstance(found_there, str)
            else:
                assert found_there == plain, (function.__code__, columns)
    assert rewritten > FUNCTIONS // 4 * 0.3 and with_fields > 5


def test_a_chain_of_steps_does_what_it_did(tmp_path):
    """What one function leaves of a batch, another takes: columns that were filtered, copied or changed."""
    chance = random.Random(9)
    made = functions(tmp_path, FUNCTIONS // 2, 77)
    filters = [function for function, columns in made if columns is None]
    for number in range(FUNCTIONS // 4):
        source = ab.from_rows([], COLUMNS)
        stream = source.filter(chance.choice(filters)).filter(chance.choice(filters))
        function, columns = made[number]
        last = stream.filter(function) if columns is None else stream.map(function, schema=columns)
        given = table(chance, chance.random() < 0.5)
        places = list(range(len(given)))
        results = []
        for batch in (
            Batch(source.schema, places, copy.deepcopy(source.schema.rows(given.columns))),
            ColumnBatch(source.schema, places, [column.combine_chunks() for column in given.columns]),
        ):
            passed: object = batch
            for each in (stream._node.inputs[0], stream._node):
                try:
                    passed = BatchSteps({}, 3).step(each)(passed, each)
                except AnabranchError as error:
                    passed = str(error)
                    break
            results.append(passed if isinstance(passed, str) else outcome(last, passed))
        if isinstance(results[0], str) and not Keeper(last.schema).tuples_last:
            assert isinstance(results[1], str)
        else:
            assert results[0] == results[1]


def test_a_selection_and_a_struct_given_as_the_tuple_do_what_they_did(tmp_path):
    chance = random.Random(5)
    texts = [Writer(chance).expression(kind) for kind in KINDS[:4] for _ in range(FUNCTIONS // 16)]
    path = tmp_path / "values.py"
    path.write_text(
        "OUTSIDE = 11\nenclosed = 5\nall = [\n" + "".join(f"    lambda t: {text},\n" for text in texts) + "]\n"
    )
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    whole = [lambda t: t.n, lambda t: t.n["w"], lambda t: t]
    schemas = ["x long, y string, z array<long>, w struct<v: double>", "v double", COLUMNS]
    for number, function in enumerate(names["all"]):
        source = ab.from_rows([], COLUMNS)
        kind = KINDS[number // (FUNCTIONS // 16)]
        others = chance.sample(["a", "s", "n.x", "n.w.v", "l", "n"], 2)
        at = number % 3
        for stream in (
            source.select(*others, made=(function, kind), again="n.y"),
            source.map(whole[at], schema=schemas[at]),
        ):
            given = table(chance, number % 2 == 0)
            places = list(range(len(given)))
            plain = outcome(stream, Batch(source.schema, places, copy.deepcopy(source.schema.rows(given.columns))))
            arrays = [column.combine_chunks() for column in given.columns]
            found = outcome(stream, ColumnBatch(source.schema, places, arrays))
            if isinstance(plain, str) and not Keeper(stream.schema).tuples_last:
                assert isinstance(found, str)
            else:
                assert found == plain, texts[number]


def first(t):
    return (t.a, t.n["x"], t.l)


def test_what_is_only_passed_on_is_not_looked_at():
    source = ab.from_rows([], COLUMNS)
    found = over_columns(first, source.schema, source.map(first, schema="a long, x long, l array<long>").schema)
    assert found is not None and found.code is None and found.reads == ()
    assert [(at, read.column, read.path) for at, read in found.copied.items()] == [
        (0, 0, ()),
        (1, 3, ("x",)),
        (2, 4, ()),
    ]


def changed(t):
    return t.but(s=t.s * 2, a=t.n["x"])


def named(t):
    if t.a > 2:
        return {"y": t.s, "x": t.a}
    return {"y": None, "x": 0}


def test_what_is_written_out_in_other_forms_is_seen_through():
    source = ab.from_rows([], COLUMNS)
    found = over_columns(changed, source.schema, source.schema)
    assert found is not None and found.computed == (2,)
    assert {at: (read.column, read.path) for at, read in found.copied.items()} == {
        0: (3, ("x",)),
        1: (1, ()),
        3: (3, ()),
        4: (4, ()),
    }
    other = over_columns(named, source.schema, Schema.of("x long, y string"))
    assert other is not None and other.computed == (1, 0)


class Adding:
    """Has a name that its class spells otherwise."""

    def __init__(self) -> None:
        self.__more = 5

    def function(self):
        return lambda t: (t.a + self.__more,)


def test_a_name_that_is_private_to_a_class_is_found():
    source = ab.from_rows([], COLUMNS)
    stream = source.map(Adding().function(), schema="c long")
    arrays = [pa.array([2]), *(pa.nulls(1, kind) for kind in source.schema.arrow.types[1:])]
    assert outcome(stream, ColumnBatch(source.schema, [0], arrays))[2] == exact([stream.schema.row_class((7,))])


@pytest.mark.parametrize(
    "function",
    [
        lambda t: (t,),
        lambda t: (*t[:2],),
        lambda t: (locals(),),
        lambda t: (t.missing,),
        lambda t: ([t := 1], t)[:1],
        lambda *t: (t.a,),
        lambda t, *, u: (t.a,),
        lambda t: {"a": t.a},
        lambda t: {"c": t.a, "c": t.b},  # noqa: F601
        lambda t: {"c": t.a, **t.n},
        lambda t: {t.s: t.a},
        lambda t: t.but(c=t.a),
        lambda t: t.but(a=t.a),
        len,
    ],
)
def test_a_function_that_must_be_called_as_it_is(function):
    assert over_columns(function, Schema.of(COLUMNS), Schema.of("c long")) is None
