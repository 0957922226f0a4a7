"""What conditions are made of, each as functions of a tuple; columns of extremes; what Python says of each tuple."""

import datetime
import linecache
import random

import pyarrow as pa

import anabranch as ab
from anabranch.compiler.rewriting.conditions import condition_of

COLUMNS = (
    "n long, m long, small int, tiny tinyint, x double, y double, f float, s string, r string, flag boolean, "
    "other boolean, at timestamp, since timestamp, local timestamp_ntz, day date, "
    "deep struct<a: long, b: double, c: string, inner: struct<v: int, w: boolean>, tags: array<string>>"
)
SCHEMA = ab.from_rows([], COLUMNS).schema
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
LOCAL = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
DAY = datetime.date(1970, 1, 1)
LIMIT = 3
BIG = 2**63 - 1
HALF = 0.5
WORD = "é"
NUMBERS = [1, 2, 1, -(2**63)]
WORDS = frozenset({"a", "\uffff"})
ROUND = {0.0, 1.5, 2}

RULES = {
    "whole numbers and constants": [
        "t.n < 3",
        "t.n >= LIMIT",
        "t.small != -1",
        "t.tiny == 127",
        "t.n == BIG",
        "0 < t.n",
    ],
    "whole numbers of two columns": ["t.n < t.m", "t.n == t.m", "t.small != t.n", "t.tiny >= t.small"],
    "comparisons in a row": ["-1 <= t.n < 3", "t.n <= t.m <= BIG", "0 <= t.small < t.n != 2"],
    "remainders": ["t.n % 3 == 1", "t.small % 7 < 2", "t.tiny % 5 != t.n % 3", "t.n % 3 in (0, 2)"],
    "floats and constants": [
        "t.x < 0.5",
        "t.x >= HALF",
        "t.f == 0.5",
        "t.x != 0",
        "t.f > -1",
        "t.x <= 9007199254740992",
    ],
    "floats of two columns": ["t.x < t.y", "t.x == t.y", "t.x != t.f", "t.f >= t.y"],
    "equal texts": ['t.s == "a"', "t.s != WORD", "t.s == t.r", "t.s != t.r", 't.s == ""'],
    "texts in order": ['t.s < "b"', "t.s >= WORD", "t.s <= t.r"],
    "booleans": ["t.flag", "t.flag == True", "t.flag != t.other", "t.other == False"],
    "moments": ["t.at < NOON", "t.at == NOON", "t.at >= t.since", "t.at != t.since"],
    "times without a zone": ["t.local <= LOCAL", "t.local == LOCAL"],
    "dates": ["t.day < DAY", "t.day != DAY"],
    "nulls": ["t.n is None", "t.s is not None", "t.deep is None", "t.x is not None", "t.flag is None"],
    "one of several": [
        "t.n in (1, 2, None)",
        't.s in ["a", "é"]',
        "t.n not in NUMBERS",
        "t.s in WORDS",
        "t.x in ROUND",
    ],
    "one of none": [
        "t.n in ()",
        "t.s not in ()",
        "t.n in (None,)",
        "t.day in (DAY,)",
        "t.flag in (True,)",
        "t.at in (NOON,)",
    ],
    "fields of structs": ['t.deep["a"] < 3', 't["deep"]["c"] == "a"', 't[15]["b"] > 0.5', 't.deep["inner"]["w"]'],
    "fields that are null": [
        't.deep["a"] is None',
        't.deep["inner"] is not None',
        't.deep["inner"]["v"] is None',
        't.deep["a"] in (1, None)',
        't.deep["a"] == t.n',
        't.deep["a"] % 2 == 1',
        't.deep["tags"] is None',
        't.deep["b"] != t.x',
    ],
}
TESTS = [test for tests in RULES.values() for test in tests]


def function_of(text):
    """A function of a tuple whose source is known, as if it stood in a file."""
    name = f"<condition {text}>"
    source = f"test = lambda t: {text}\n"
    linecache.cache[name] = (len(source), None, [source], name)
    around = dict(globals())
    exec(compile(source, name, "exec"), around)
    return around["test"]


def told(function, rows):
    """What a function says of each tuple: True, False, or that it fails."""

    def of(row):
        try:
            return bool(function(row))
        except TypeError:
            return "fails"

    return [of(row) for row in rows]


def combination(chance, depth=2):
    """Tests put together."""
    if depth == 0 or chance.random() < 0.2:
        text = chance.choice(TESTS)
        return f"not {text}" if chance.random() < 0.2 else f"({text})"
    parts = [combination(chance, depth - 1) for _ in range(chance.choice([2, 2, 3]))]
    text = chance.choice([" and ", " or "]).join(parts)
    return f"not ({text})" if chance.random() < 0.2 else f"({text})"


def columns_of(chance, count, spread=None, nulls=None):
    """Arrow columns of extremes; with `spread`, of few values of each that stand together."""
    nulls = chance.choice([0.0, 0.2, 1.0]) if nulls is None else nulls
    values = {
        "int": [0, 1, 2, 3, -1, 4, 127, -128],
        "long": [2**63 - 1, -(2**63), 2**53 + 1],
        "float": [0.0, -0.0, 0.5, 1.5, -1.5, float("inf"), -float("inf"), float("nan")],
        "double": [1e308, 9007199254740992.0, 5e-324],
        "text": ["", "a", "ab", "b", "é", "\uffff", "\U00010000", "z" * 70],
        "moment": [
            0,
            NOON.timestamp() * 10**6,
            NOON.timestamp() * 10**6 + 1,
            -1,
            -62135596800000000,
            253402300799999999,
        ],
        "day": [0, 1, -1, 2932896, -719162],
    }

    def some(of):
        return chance.sample(of, min(len(of), chance.randint(1, 2))) if spread else of

    def column(kind, depth=0):
        if pa.types.is_struct(kind):
            fields = [column(field.type, depth + 1) for field in kind]
            names = [field.name for field in kind]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
            return [None if chance.random() < nulls / 2 else row for row in rows]
        own = chance.choice([nulls, 0.0, nulls])
        if pa.types.is_integer(kind):
            of = values["int"] + (values["long"] if kind == pa.int64() else [])
        elif pa.types.is_floating(kind):
            of = values["float"] + (values["double"] if kind == pa.float64() else [])
        elif pa.types.is_boolean(kind):
            of = [True, False]
        elif pa.types.is_timestamp(kind):
            of = [int(each) for each in values["moment"]]
        elif pa.types.is_date(kind):
            of = values["day"]
        elif pa.types.is_list(kind):
            of = [["a"], []]
        else:
            of = values["text"]
        of = some(of)
        return [None if chance.random() < own else chance.choice(of) for _ in range(count)]

    return [pa.array(column(field.type), field.type) for field in SCHEMA.arrow]


def condition(text):
    """A function's condition, which there must be."""
    found = condition_of(function_of(text), SCHEMA)
    assert not isinstance(found, str), f"{text}: {found}"
    return found


def chance_of(*seed):
    return random.Random(repr(seed))
