"""Functions that only compute are called once for equal values: the same output and error, for random functions."""

import ast
import datetime
import decimal
import itertools
import random
import re

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.compiler.rewriting.equal_calls import equal_calls
from anabranch.compiler.rewriting.over_columns import over_columns
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.batches import BatchSteps
from anabranch.engine.worker.equal_values import SAMPLE, equal_values
from anabranch.errors import AnabranchError
from anabranch.program.schema import Schema
from tests.programs import exact

COLUMNS = (
    "a long, b double, s string, at timestamp, naive timestamp_ntz, d date, m decimal(9, 2), f boolean, x binary, "
    "n struct<s: string, at: timestamp>"
)
TABLE = {"ab": 1, "": None, None: 7}
WORDS = ["ab", "c/d"]
RATE = decimal.Decimal("0.908")
PATTERN = re.compile("[a-c]")
PIECES = {
    "long": [
        *("t.a", "len(t.s)", "TABLE.get(t.s)", "t.at.hour", "t.naive.minute", "t.d.year", "t.a // t.f", "further"),
        *("t.at.second", "t.at.microsecond", "int(t.b)", "t.d.isoweekday()", "t.naive.toordinal()", "round(t.m)"),
        *("sum(len(each) for each in t.s.split('/'))", "(t.s.split('/') + [None] * 3)[1].count('d')", "TABLE[t.s]"),
        *("len(PATTERN.findall(t.s))", "max(t.a, 3)", "t['a'] % t.a", "(q := t.a) + q", "t.n['at'].hour", "len(t.x)"),
    ],
    "double": ["t.b", "-t.b", "t.b * t.a", "abs(t.b)", "1 / t.b", "t.at.timestamp()", "math.sqrt(t.b)", "0.0 * t.a"],
    "string": [
        *(
            "t.s",
            "f'{t.at:%Y-%m-%d}'",
            "f'{t.naive:%H:%M}|{t.a}'",
            "t.at.strftime('%j %S')",
            "f'{t.at:%f}'",
            "str(t.b)",
        ),
        *("t.s.upper()", "f'{t.d:%A}'", "t.at.isoformat()", "str(t.m * RATE)", "f'{t.b:.1f}'", "t.n['s']", "repr(t.x)"),
        *("('x' if t.s in WORDS else t.s)", "re.sub('a', str(t.a), t.s)", "f'{t.at}'", "str(t.at.date())", "str(t.f)"),
        *("f'{t.at:%%Y%H}'", "t.naive.strftime('%')", "str(t.at.replace(second=0))", "str(t.at - t.at)", "t.s[t.a]"),
    ],
    "decimal(20, 4)": ["t.m", "t.m * 2", "RATE * t.a", "decimal.Decimal(t.a)"],
    "boolean": [
        "t.f",
        "t.a > 1",
        "t.s in WORDS",
        "t.at.hour < 12 <= t.naive.hour",
        "t.b != t.b",
        "t.n is None",
        "not t.s",
    ],
    "timestamp": ["t.at", "t.at + datetime.timedelta(seconds=t.a)", "t.naive.replace(microsecond=0)"],
    "date": ["t.d", "t.at.date()", "datetime.date(2024, 1 + t.naive.month % 12, 1)"],
}


def columns(chance: random.Random, rows: int, nulls: bool) -> list[pa.Array]:
    """A few distinct values in each column, but for times, of which many are in one minute."""
    start = datetime.datetime(1969, 12, 31, 23, 58, 59, 999_990, tzinfo=datetime.UTC)

    def time() -> datetime.datetime:
        return start + datetime.timedelta(seconds=chance.randrange(150), microseconds=chance.randrange(20))

    def row() -> tuple:
        found = (
            *(
                chance.randrange(-1, 3),
                chance.choice([0.0, -0.0, 1.5, float("nan")]),
                chance.choice(["", "ab", "c/d", "ü"]),
            ),
            *(time(), time().replace(tzinfo=None), datetime.date(1970, 1, chance.randrange(1, 4))),
            *(
                decimal.Decimal(chance.choice(["0.00", "1.25", "-3.10"])),
                chance.random() < 0.9,
                chance.choice([b"", b"z"]),
            ),
            {"s": chance.choice(["ab", "b"]), "at": time()},
        )
        return tuple(None if nulls and chance.random() < 0.02 else value for value in found)

    schema = Schema.of(COLUMNS)
    return schema.arrays(list(zip(*(row() for _ in range(rows)), strict=True)))


def outcome(stream: ab.Stream, batch: Batch, switched: tuple[str, ...]) -> object:
    node = stream._node
    try:
        made = BatchSteps({}, 3, columns=switched).step(node)(batch, node)
    except AnabranchError as error:
        return str(error)
    arrays = made.arrays()
    return list(made.positions), exact(node.schema.rows(arrays))


def function_of(text: str, place, name: str):
    path = place / f"{name}.py"
    path.write_text(f"import datetime, decimal, math, re\ndef made(outer):\n    return {text}\n")
    names = {"TABLE": TABLE, "WORDS": WORDS, "RATE": RATE, "PATTERN": PATTERN}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names["made"](5)


@pytest.mark.parametrize("seed", range(3))
def test_a_function_called_once_for_equal_values_gives_what_it_gave(tmp_path, seed):
    chance = random.Random(seed)
    source = ab.from_rows([], COLUMNS)
    shared = failed = 0
    pieces = [(kind, piece) for kind, each in PIECES.items() for piece in each]
    batches = [columns(chance, SAMPLE + 200, nulls) for nulls in (False, True)]
    for number, (kind, piece) in enumerate(pieces):
        other_kind, other = chance.choice(pieces)
        text = [
            f"lambda t, further=4: ({piece}, {other})",
            f"lambda t, further=4: ({piece}, {other}) if t.a != 2 else ({piece}, {other})",
            f"lambda t, further=4: {piece}",
        ][number % 3]
        function = function_of(text, tmp_path, f"f{seed}_{number}")
        schema = f"one {kind}, two {other_kind}"
        stream = source.filter(function) if number % 3 == 2 else source.map(function, schema=schema)
        code = over_columns(function, source.schema, None if number % 3 == 2 else stream.schema)
        for arrays in batches:
            places = list(range(10, 10 + len(arrays[0])))
            plain = outcome(stream, Batch(source.schema, places, source.schema.rows(arrays)), ())
            assert outcome(stream, ColumnBatch(source.schema, places, arrays), ("calls",)) == plain, text
            failed += isinstance(plain, str)
            if code is not None and code.code is not None and not code.structs:
                shared += (
                    equal_values(code, code.bound(function), ColumnBatch(source.schema, places, arrays)) is not None
                )
    assert shared > len(pieces) * 0.7 and failed > len(pieces) * 0.3


class Odd(str):
    def upper(self):
        return str(next(COUNT))


COUNT = itertools.count()
LOG: list = []
ODD = Odd("ab")


def counted(t):
    return next(COUNT) + t.a


def noted(t):
    LOG.append(t.a)
    return t.a


def aliased(t):
    log = LOG
    log.append(t.a)
    return t.a


def of_the_clock(t):
    return str(datetime.datetime.now()) + t.s


def own(t):
    return ODD.upper() + t.s


def kept(t, seen=[]):  # noqa: B006
    seen.append(t.a)
    return len(seen)


def rebound(t, seen=LOG):
    seen = [*seen, t.a]
    return len(seen)


def drawn(t):
    return random.random() + t.a


def hashed(t):
    return hash(t.s)


def user_table(t):
    return {ODD: 1}[ODD.upper()] + t.a


def set_outside(t):
    TABLE["more"] = t.a
    return t.a


def printed(t):
    print(t.a)
    return t.a


def called_by_another_name(t):
    draw = random.random
    return draw() + t.a


def read_twice(t):
    return sum(each() for each in (random.random,)) + t.a


@pytest.mark.parametrize(
    "function",
    [
        *(counted, noted, aliased, of_the_clock, own, kept, rebound, drawn, hashed, user_table, set_outside, printed),
        *(called_by_another_name, read_twice),
        lambda t: LOG.append(t.a) or t.a,
        lambda t: (lambda: next(COUNT))() + t.a,
        lambda t: sorted([t.a, 2], key=noted)[0],
    ],
)
def test_what_may_do_more_than_compute_is_called_for_each(function):
    source = ab.from_rows([], COLUMNS)
    code = over_columns(function, source.schema, None)
    assert code is None or code.equal is None or not code.equal.holds(code.bound(function))


def test_what_is_around_a_function_is_looked_at_before_each_batch():
    table = {"ab": 1}
    source = ab.from_rows([], COLUMNS)
    function = lambda t: (table.get(t.s),)  # noqa: E731
    code = over_columns(function, source.schema, source.map(function, schema="x long").schema)
    assert code is not None and code.equal is not None and code.equal.holds(code.bound(function))
    table[Odd("zz")] = 2
    assert not code.equal.holds(code.bound(function))


def test_values_that_mostly_differ_are_not_compared():
    source = ab.from_rows([], COLUMNS)
    code = over_columns(lambda t: t.a > 2, source.schema, None)
    arrays = columns(random.Random(1), SAMPLE, nulls=False)
    batch = ColumnBatch(source.schema, range(SAMPLE), arrays)
    assert equal_values(code, code.bound(lambda t: t.a > 2), batch) is not None
    arrays[0] = pa.array(range(SAMPLE))
    assert equal_values(code, code.bound(lambda t: t.a > 2), ColumnBatch(source.schema, range(SAMPLE), arrays)) is None


@pytest.mark.parametrize("letter", "aAwdbBmyYHIpMSfzZjUWcxXGuV%sDhe")
def test_a_format_looks_no_closer_than_is_said(letter):
    """Times that are equal to the minute, or second, have one text, if that is what is said of the format."""
    body = ast.parse(f"f'{{t:%{letter}}}'").body
    found = equal_calls(body, ["t"])
    unit = found.coarse.get("t")
    if unit is None:
        return
    time = datetime.datetime(2024, 3, 1, 13, 59, 58, 7, tzinfo=datetime.UTC)
    floor = time - datetime.timedelta(microseconds=time.timestamp() * 1_000_000 % unit)
    assert time.strftime(f"%{letter}") == floor.strftime(f"%{letter}")
