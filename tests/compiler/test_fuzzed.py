"""The fuzzer for inference: what is made runs as on one thread, whatever the verdict; and what it has found so far.

`make test` tries a few of each kind; ANABRANCH_FUZZED says how many, for a night.
"""

from __future__ import annotations

import datetime
import os
import textwrap

import cloudpickle
import pytest

from tests.compiler import mutants
from tests.compiler.corpus import load
from tests.compiler.fuzzing import sources
from tests.compiler.fuzzing.generated import HEAD, generated
from tests.compiler.fuzzing.trials import WAYS, Program, check, judged, tried

AMOUNT = int(os.environ.get("ANABRANCH_FUZZED", "48"))
CHUNK = 24
for module in (*load()[1], mutants):
    cloudpickle.register_pickle_by_value(module)

ROWS = [
    (n * 7 % 5, "start" if n % 7 == 0 else "ab"[n % 2], n * 1.5 - 6, n * 3 % 5, [float(n), 1.0][: n % 3],
     datetime.date(2024, 1, 1 + n % 3))
    for n in range(22)
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, AMOUNT, CHUNK))
def test_operators_from_scratch(first):
    assert "partitioned" in check(sources.from_scratch(range(first, first + CHUNK)), ROWS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, AMOUNT, CHUNK))
def test_operators_with_changed_code(first):
    check(sources.changed(range(first, first + CHUNK)), ROWS)


def test_the_fuzzer_would_see_a_wrong_verdict(monkeypatch):
    """A test of the test: without the proof, operators with state are told from stateless ones by what they emit."""
    from anabranch.compiler.layout import analysis

    monkeypatch.setattr(analysis, "ordered_blocks", lambda found: [])
    seen = sum(bool(trial.difference) for trial in tried(map(generated, range(24)), ROWS, WAYS[:1]))
    assert seen >= 4


# -- what was found, each a class of its own ------------------------------------------------------------------------


def operator(body, head="", held="LOG = []", result="len(LOG)"):
    lines = textwrap.indent(body, "    ")
    text = f"{HEAD}{held}\n\n{head}\n\ndef Operator(t):\n{lines}\n    yield t.but(count={result})\n"
    return Program(body, text, makes=False, truth="unsafe", culprits=("LOG", "e.log"))


RECORD = "@dataclasses.dataclass\nclass Record:\n    log: list\n"
UNSAFE = {
    "put into what a library function made": operator("x = json.loads('{}')\nx['a'] = LOG\nx['a'].append(1)"),
    "put into a deep copy": operator("x = copy.deepcopy([[]])\nx[0].append(LOG)\nx[0][0].append(1)"),
    "a sum of lists": operator("sum([[LOG]], [])[0].append(1)"),
    "the start of a sum": operator("x = sum([], LOG)\nx.append(1)"),
    "the start of a product": operator("x = math.prod([], start=LOG)\nx.append(1)"),
    "one of several iterators": operator("x = itertools.tee([LOG])[0].__next__()\nx.append(1)"),
    "the middle of one": operator("x = statistics.median_low([LOG])\nx.append(1)"),
    "what a hook gave": operator("x = json.loads('{}', object_hook=lambda d: LOG)\nx.append(1)"),
    "a value of an enumeration": operator("Kind.LOG.value.append(1)", "class Kind(enum.Enum):\n    LOG = []", "",
                                          "len(Kind.LOG.value)"),
    "a copy of an object": operator("x = copy.copy(LOG)\nx.log.append(1)", "LOG = Record([])", RECORD, "len(LOG.log)"),
    "one of many objects": operator("x = (LOG if t.id else MORE)[0]\nx.log.append(1)",
                                    "LOG = [Record([]) for _ in range(20)]\nMORE = [Record([]) for _ in range(20)]",
                                    RECORD, "len(LOG[0].log)"),
    "an error that was caught": operator("try:\n    raise Odd(LOG)\nexcept Odd as e:\n    e.log.append(1)",
                                         "class Odd(Exception):\n    def __init__(self, log):\n        self.log = log"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE)
def test_a_way_to_hidden_state_that_was_once_missed(name):
    trial = judged(UNSAFE[name])
    assert trial.is_held_back and trial.reason_is_true, trial.reasons
    check([UNSAFE[name]], ROWS)


def test_the_tuple_is_not_changed_behind_a_detour():
    program = Program("tuple", f"{HEAD}\ndef Operator(t):\n    x = json.loads('{{}}')\n    x['a'] = t.items\n"
                      "    x['a'].append(1.0)\n    yield t\n", makes=False, truth="unsafe")  # fmt: skip
    assert judged(program).is_held_back


def test_an_expression_is_no_key_once_its_value_has_changed():
    text = (
        f"{HEAD}\nclass Operator:\n    def __init__(self):\n        self.n = {{}}\n\n    def __call__(self, t):\n"
        + ("        l = sorted(t.items)\n        l.append(0.0)\n        self.n[len(l)] = 1\n        yield t\n")
    )
    assert judged(Program("key", text)).verdict == "unknown"


IN_ONE_CHANNEL = {
    "state of the class": "class Operator:\n    held = [0]\n\n    def __call__(self, t):\n        self.held[0] += 1\n"
                          "        yield t.but(count=self.held[0])\n",
    "a number of the class": "class Operator:\n    n = 0\n\n    def __call__(self, t):\n        Operator.n += 1\n"
                             "        yield t.but(count=Operator.n)\n",
    "state of another class": "class Box:\n    n = 0\n\nclass Operator:\n    def __call__(self, t):\n"
                              "        Box.n += 1\n        yield t.but(count=Box.n)\n",
    "a global number": "n = 0\n\nclass Operator:\n    def __call__(self, t):\n        global n\n        n += 1\n"
                       "        yield t.but(count=n)\n",
    "a global list of a method": "LOG = []\n\nclass Operator:\n    def __call__(self, t):\n        LOG.append(t.id)\n"
                                 "        yield t.but(count=len(LOG))\n",
    "a list in a default": "class Operator:\n    def __call__(self, t, log=[]):\n        log.append(t.id)\n"
                           "        yield t.but(count=len(log))\n",
    "functions made on the way": "class Operator:\n    def __init__(self):\n"
                                 "        inner = collections.defaultdict\n"
                                 "        self.d = inner(lambda: collections.defaultdict(lambda: 5))\n"
                                 "        self.last = lambda: 0\n\n    def __call__(self, t):\n        n = t.count\n"
                                 "        before, self.last = self.last(), lambda: n\n"
                                 "        self.d[0][t.id] += before\n        yield t.but(count=self.d[0][t.id])\n",
    "a namespace": "class Operator:\n    def __init__(self):\n        self.a = types.SimpleNamespace(n=0)\n\n"
                   "    def __call__(self, t):\n        self.a.n += 1\n        self.a.last = t.id\n"
                   "        yield t.but(count=self.a.n)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", IN_ONE_CHANNEL)
def test_what_runs_in_one_channel_keeps_its_state_wherever_it_is(name):
    program = Program(name, HEAD + IN_ONE_CHANNEL[name], truth="unsafe")
    (trial,) = tried([program], ROWS, WAYS)
    assert trial.verdict == "unknown" and not trial.difference, (trial.reasons, trial.difference)


@pytest.mark.parametrize("mode", ["map", "filter", "flat_map"])
def test_a_function_that_remembers_runs_in_one_channel(mode):
    result = {"map": "t.but(count=n)", "filter": "n % 2 == 0", "flat_map": "[t] * (n % 3)"}[mode]
    text = f"n = 0\n\ndef Operator(t):\n    global n\n    n += 1\n    return {result}\n"
    (trial,) = tried([Program(mode, text, makes=False, mode=mode, truth="unsafe")], ROWS, WAYS)
    assert trial.verdict == "unknown" and not trial.difference, (trial.reasons, trial.difference)


KEEPS = """
class Acc:
    def __init__(self, held=None):
        self.held = held
        self.n = 0


class Operator:
    def __init__(self):
        self.d, self.e = {}, {}

    def __call__(self, t):
"""
ALIASED = {
    "the operator in a value of its state": "a = self.d.setdefault(t.id, Acc(self))\na.held.e[t.id] = 1",
    "an object in two dicts": "self.d[t.id] = self.e[t.id] = Acc()",
    "a dict of state in a value": "a = self.d.setdefault(t.id, Acc())\na.held = self.e\nself.e[t.id] = 1",
    "twice in a list that passes by": "x = []\nself.d.setdefault(t.id, []).extend([x, x])",
    "on both sides of a sum": "x = []\ny, z = [x], [x]\nself.d.setdefault(t.id, []).extend(y + z)",
    "repeated": "self.d.setdefault(t.id, [[]] * 2)[0].append(1)",
    "by a slice": "x = self.d.setdefault(t.id, [[]])\nx[:] = [x[0], x[0]]",
}


@pytest.mark.parametrize("name", ALIASED)
def test_no_object_is_kept_twice_or_leads_out_of_the_state(name):
    body = textwrap.indent(ALIASED[name], "        ")
    trial = judged(Program(name, f"{HEAD}{KEEPS}{body}\n        yield t\n"))
    assert trial.verdict == "unknown", trial.reasons


KEPT = {
    "a tuple in two dicts": "self.e[t.id], self.d[t.id] = t, t\nn = self.e[t.id].count",
    "objects": "a = self.d.get(t.id)\nif a is None:\n    a = self.d[t.id] = Acc([])\na.held.append(t)\nn = len(a.held)",
    "objects by a computed key": "a = self.d.setdefault(t.id % 2, Acc(0))\na.n += t.count\nn = a.n",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_for_keys_is_kept_whole(name):
    body = textwrap.indent(KEPT[name], "        ")
    (trial,) = tried([Program(name, f"{HEAD}{KEEPS}{body}\n        yield t.but(count=n)\n")], ROWS, WAYS)
    assert trial.is_safe and not trial.difference, (trial.verdict, trial.reasons, trial.difference)
