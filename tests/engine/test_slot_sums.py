"""Users' methods that only add up, for all keys at once: bit by bit what tuple by tuple gives, or nothing was done."""

import importlib.util
import linecache
import random
import re
import sys
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.compiler.rewriting.slot_folds import Added, fold_of
from anabranch.engine.worker import slot_columns, slot_sums
from anabranch.errors import AnabranchError
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun, run_sequential

COLUMNS = "k long, x double, y double, n long, m int, s string"
OUTPUT = "k long, a {a}, b double, s string"
NUMBERS = {
    "x": [0.1, -0.0, 0.0, 1e16, -1.5, 3.3, 2.0**53],
    "y": [0.25, -7.125, 1e-12, 1.0, 3.0],
    "n": [0, 1, -1, 7, 10**6],
    "m": [1, 2, -3, 11],
}
ODD = {
    "x": [None, float("nan"), float("inf"), 1e308, -1e308],
    "y": [0.0, None],
    "n": [None, 2**62, -(2**63), 2**53 + 1],
    "m": [0],
}


def expression(chance, depth=2, names=("x", "y", "n", "m")):
    """Some arithmetic on columns."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([f"t.{chance.choice(names)}"] * 5 + ["1", "2.5", "u", "-t.n", "0.1"])
    sign = chance.choice(["+", "-", "*", "*", "/"])
    if sign == "/":
        return f"({expression(chance, depth - 1, names)} / {chance.choice(['t.y', 't.m', 't.y', 't.x'])})"
    return f"({expression(chance, depth - 1, names)} {sign} {expression(chance, depth - 1, names)})"


def source_of(seed):
    chance = random.Random(seed)
    whole = chance.random() < 0.5
    a = chance.choice(["t.n", "1", "t.m * 3", "t.n - t.m", "2 * t.n + 1"]) if whole else expression(chance)
    lines = [f"u = {expression(chance).replace('u', 't.m')}"]
    lines.append(chance.choice([f"self.a += {a}", f"self.a = self.a + {a}", f"self.a -= {a}"]))
    lines.append(f"self.b += {expression(chance)}")
    given = chance.choice(["self.b", "self.a / self.b", "self.b * t.x - self.c", "u * 1.0 + self.b", "self.a * 0.5"])
    lines.append(f"yield t.k, {chance.choice(['self.a', 't.n' if whole else 't.x'])}, {given}, t.s")
    defaults = "0" if whole else chance.choice(["0", "0.0", "-0.0"]), chance.choice(["0.0", "0", "1e-3"])
    body = "".join(f"        {line}\n" for line in lines)
    text = (
        f"class Sums{seed}(ab.Operator):\n    a: float = ab.state(default={defaults[0]})\n"
        f"    b: float = ab.state(default={defaults[1]})\n    c: float = ab.state(default=2.0)\n\n"
        f"    def process(self, t):\n{body}\n\n"
    )
    return text, OUTPUT.format(a="long" if whole else "double")


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    """Random operators, in a file, because the rewriting reads it."""
    path = tmp_path_factory.mktemp("sums") / "random_sums.py"
    path.write_text("import anabranch as ab\n\n\n" + "".join(source_of(seed)[0] for seed in range(400)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


def rows_of(chance, count, keys, odd):
    def value(name):
        return chance.choice(ODD[name] if chance.random() < odd else NUMBERS[name])

    return [
        (chance.randrange(keys) if chance.random() < 0.8 else 0, *map(value, "xynm"), chance.choice("ab"))
        for _ in range(count)
    ]


def outcome(run):
    try:
        return [repr(tuple(row)) for row in run()]
    except AnabranchError as error:
        return type(error).__name__, re.sub(r", epoch \d+", "", str(error)).partition("The epoch failed")[0]


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(0, 399),
    seed=st.integers(0, 100_000),
    keys=st.sampled_from([1, 3, 40]),
    odd=st.sampled_from([0.0, 0.0, 0.02]),
    rounds=st.sampled_from([0, 1, 5, 48]),
)
def test_sums_of_all_keys_are_those_of_each(tmp_path_factory, operators, number, seed, keys, odd, rounds):
    chance = random.Random(seed)
    rows = rows_of(chance, chance.choice([5, 60, 200]), keys, odd)
    per_epoch = max(1, len(rows) // 3)
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=per_epoch)
    _, output = source_of(number)
    stream = stream.process(getattr(operators, f"Sums{number}")(), by="k", schema=output)
    expected = outcome(lambda: run_sequential([stream])[0])
    folder = str(tmp_path_factory.mktemp("checkpoint"))

    def parallel():
        run = ParallelRun(stream, folder, channels=1 if isinstance(expected, tuple) else 2, seed=seed)
        run.run_epochs()
        return run.output

    with mock.patch.object(slot_sums, "ROWS_MIN", 1), mock.patch.object(slot_sums, "_ROUNDS", rounds):
        assert outcome(parallel) == expected, source_of(number)[0]


def test_most_of_the_random_sums_are_computed_for_all_keys_at_once(tmp_path, operators):
    """And where a batch is not, the state is as it was."""
    done = []
    original = slot_sums.SlotSums.run

    def noted(self, *given):
        before = [list(values) for values in self._values]
        found = original(self, *given)
        assert found is not None or repr(before) == repr([list(values) for values in self._values])
        done.append(found is not None)
        return found

    with mock.patch.object(slot_sums, "ROWS_MIN", 1), mock.patch.object(slot_sums.SlotSums, "run", noted):
        for number in range(40):
            rows = rows_of(random.Random(number), 40, 3, 0.0)
            stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=20)
            stream = stream.process(getattr(operators, f"Sums{number}")(), by="k", schema=source_of(number)[1])
            outcome(lambda at=number, made=stream: ParallelRun(made, str(tmp_path / str(at))).run_epochs() or [])
    assert sum(done) > 12


class TakenOff(ab.Operator):
    total: float = ab.state(default=-0.0)

    def process(self, t):
        self.total -= t.n
        yield t.k, self.total


def test_a_whole_number_taken_off_a_zero_below_zero_leaves_its_sign(tmp_path):
    rows = [(k % 3, 0.0, 0.0, 0, 1, "a") for k in range(20)]
    stream = ab.from_rows(rows, COLUMNS).process(TakenOff(), by="k", schema="k long, total double")
    run = ParallelRun(stream, str(tmp_path))
    with mock.patch.object(slot_sums, "ROWS_MIN", 1):
        run.run_epochs()
    assert repr(run.output) == repr(stream.run_sequential())
    assert "-0.0" in repr(run.output)


class Vwap(ab.Operator):
    amount: float = ab.state(default=0.0)
    volume: float = ab.state(default=0.0)

    def process(self, t):
        self.amount += t.x * t.y
        self.volume += t.y
        yield t.k, self.amount / self.volume


@pytest.mark.parametrize("without", [(), ("slots",), ("methods",)])
def test_hot_and_rare_keys_over_epochs(tmp_path, without):
    chance = random.Random(3)
    keys = [0] * 500 + list(range(300)) * 2
    rows = [(chance.choice(keys), chance.uniform(-9, 9), chance.uniform(0.1, 9), 1, 1, "") for _ in range(3000)]
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=1000).process(Vwap(), by="k", schema="k long, v double")
    taken = []
    original = slot_sums.SlotSums._float_sums

    def noted(self, value, begun):
        taken.append(len(value))
        return original(self, value, begun)

    with mock.patch.object(slot_sums.SlotSums, "_float_sums", noted):
        run = ParallelRun(stream, str(tmp_path), channels=2, columns=set(OVER_COLUMNS) - set(without))
        run.run_epochs()
    assert list(map(repr, run.output)) == list(map(repr, run_sequential([stream])[0]))
    assert bool(taken) is (not without)


def folded(text):
    """The fields that are found to be running sums."""
    source = (
        f"class Made(ab.Operator):\n    a = ab.state(0)\n    b = ab.state(0.0)\n\n    def process(self, t):\n{text}"
    )
    path = f"<made {len(folded.made)}>"
    folded.made.append(path)
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    names = {"ab": ab}
    exec(compile(source, path, "exec"), names)
    rows = ab.from_rows([], COLUMNS)
    code = slot_columns.slot_code(rows.process(names["Made"](), by="k", schema="k long, y double")._node)
    fold = None if code is None else fold_of(code)
    return None if fold is None else [each.field for each in fold if isinstance(each, Added)]


folded.made = []


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        (["self.a += 1", "yield t.k, self.a * 0.5"], [0]),
        (["self.b = self.b - t.x", "u = self.b", "yield t.k, u / t.y"], [1]),
        (["self.a += t.n", "self.b += t.x * self.a", "yield t.k, self.b"], [0, 1]),
        (["yield t.k, self.b", "self.b += t.x"], None),  # what was there before the tuple
        (["self.a += self.b", "self.b += t.x", "yield t.k, self.b"], None),
        (["self.b += self.b", "yield t.k, self.b"], None),
        (["self.b += t.x", "self.b += t.y", "yield t.k, self.b"], None),
        (["self.b = t.x + self.b", "yield t.k, self.b"], None),
        (["self.b *= t.x", "yield t.k, self.b"], None),
        (["self.b += t.x % 2", "yield t.k, self.b"], None),
        (["self.b += len(t.s)", "yield t.k, self.b"], None),
        (["if t.x:", "    self.b += t.x", "yield t.k, self.b"], None),
        (["self.b += t.x", "if t.x:", "    yield t.k, self.b"], None),
        (["self.b += True", "yield t.k, self.b"], None),
    ],
)
def test_which_methods_only_add_up(lines, fields):
    assert folded("".join(f"        {line}\n" for line in lines)) == fields
