"""Operators of several functions, one of which leaves an object that another changes.

Where the object is made anew for each key, or window, the program is safe. Where it outlives the call (`HOLDERS`), one
thread has one for all keys, and no channel could: such a program is refused. A function that hands it over may take any
detour (`detours.WRAPPINGS`).
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
from collections.abc import Iterator
from random import Random
from typing import Any

import anabranch as ab
from tests.compiler.fuzzing.detours import HELPERS, WRAPPINGS
from tests.compiler.fuzzing.generated import HEAD

_serial = itertools.count()

#: How an object comes to outlive the call: what stands at the top, and the expression that gives it.
HOLDERS = {
    "a closure": ("", "held"),
    "a global": ("HELD = []", "HELD"),
    "a container": ("HELD = {'a': ([],)}", "HELD['a'][0]"),
    "a class": ("class Box:\n    held = []", "Box.held"),
    "an object": ("class Box:\n    def __init__(self):\n        self.held = []\n\nBOX = Box()", "BOX.held"),
    "a default": ("def given(held=[]):\n    return held", "given()"),
    "a cache": ("@functools.lru_cache\ndef given():\n    return []", "given()"),
    "a property": (
        "class Box:\n    inner = []\n\n    @property\n    def held(self):\n        return self.inner\n\nBOX = Box()",
        "BOX.held",
    ),
    "a default of a dataclass": (
        "@dataclasses.dataclass\nclass Box:\n    held: list = dataclasses.field(default_factory=list)\n\nBOX = Box()",
        "BOX.held",
    ),
    "an argument of a partial": ("given = functools.partial(lambda held: held, [])", "given()"),
    "a subclass": (
        "class Base:\n    held = []\n\n    def given(self):\n        return self.held\n\n"
        "class Box(Base):\n    def given(self):\n        return super().given()\n\nBOX = Box()",
        "BOX.given()",
    ),
}
FRESH = ("", "[]")
_PLAIN = [each for each in WRAPPINGS if "_stack(" not in each]

_OPERATOR = "class Op(ab.Operator):\n    held = ab.state({begin})\n\n    def process(self, t):\n{process}\n"
_GIVES = "        yield t.k, len(self.held or ())"


def _methods(begin: str, process: str, **others: str) -> str:
    body = "".join(f"        {line}\n" for line in process.splitlines())
    made = _OPERATOR.format(begin=begin, process=body + _GIVES)
    for name, lines in others.items():
        argument = {"on_timer": ", time", "on_broadcast": ", t"}.get(name, "")
        body = "".join(f"        {line}\n" for line in lines.splitlines())
        made += f"\n    def {name}(self{argument}):\n{body}"
    return made


_ADD = "def add(a, v):\n    a.append(v)\n    return a\n"
_TIMED = "s.event_time('x', lateness=1)"
_PROCESS = "return s.process(Op(), by='k', schema=OUT)"
_MEMBERS = _methods("default=None", "self.held = {x}") + _methods(
    "default=None", "if self.held is not None:\n    self.held.append(1)"
).replace("class Op", "class Other")
_ACCUMULATOR = (
    "class Op(ab.Operator):\n    held = ab.accumulator(factory={first}, merge=merge)\n\n"
    "    def process(self, t):\n        {process}\n\n"
    "    def result(self):\n        {result}\n        yield 'all', len(self.held)\n"
)

#: One function leaves `{x}` somewhere, another changes it: what defines the operator, and what puts it into a program.
PAIRS = {
    "create and add": (_ADD, "return custom(s, lambda: {x}, add, len)"),
    "create and result": (
        "def result(a):\n    a.append(1)\n    return len(a)\n",
        "return custom(s, lambda: {x}, lambda a, v: a, result)",
    ),
    "add and add": (
        "def add(a, v):\n    a = {x} if a is None else a\n    a.append(v)\n    return a\n",
        "return custom(s, lambda: None, add, len)",
    ),
    "create and remove": (
        "def remove(a, v):\n    del a[0]\n    return a\n" + _ADD,
        "n = ab.agg.custom(lambda: {x}, add, len, 'long', 'x', remove=remove)\n"
        "return s.aggregate(by='k', window=ab.sliding(2), n=n)",
    ),
    "a factory and process": (_methods("factory=lambda: {x}", "self.held.append(t.x)"), _PROCESS),
    "process and the next call": (
        _methods("default=None", "if self.held is None:\n    self.held = {x}\nself.held.append(t.x)"),
        _PROCESS,
    ),
    "process and on_timer": (
        _methods(
            "default=None",
            "if self.held is None:\n    self.held = {x}\nself.timers.at(t.x + 3)",
            on_timer="self.held.append(time)\nyield 'timer', len(self.held)",
        ),
        f"return {_TIMED}.process(Op(), by='k', schema=OUT)",
    ),
    "process and on_punctuation": (
        _methods(
            "default=None",
            "if self.held is None:\n    self.held = {x}",
            on_punctuation="self.held.append(1)\nyield 'mark', len(self.held)",
        ),
        "return s.punctuate(lambda t: t.x % 3 == 0).process(Op(), by='k', schema=OUT)",
    ),
    "on_broadcast and process": (
        _methods(
            "default=None",
            "if self.held is None:\n    self.held = self.told.get('a')\n"
            "if self.held is not None:\n    self.held.append(1)",
            on_broadcast="self.told['a'] = {x}",
        ).replace("\n\n", "\n    told = ab.broadcast(factory=dict)\n\n", 1),
        "return s.process(Op(), by='k', broadcast=rules, schema=OUT)",
    ),
    "two that share state": (_MEMBERS, "return list(ab.share((s, Op(), OUT), (s, Other(), OUT), by='k'))"),
    "an accumulator's factory and process": (
        "merge = lambda a, b: a + b\n"
        + _ACCUMULATOR.format(first="lambda: {x}", process="self.held.append(t.x)", result="pass"),
        "return s.accumulate(Op(), schema=OUT, block=3, every=6)",
    ),
    "merge and result": (
        "merge = lambda a, b: {x}\n"
        + _ACCUMULATOR.format(first="list", process="pass", result="self.held.append(1)"),
        "return s.accumulate(Op(), schema=OUT, block=3, every=6)",
    ),
    "a key and itself": (
        "key = ab.key(lambda t: {x}.append(1) or len({x}), 'n long')\n",
        "return s.aggregate(by=key, window=ab.running(), c=ab.agg.count())",
    ),
    "a column and itself": ("", "return s.select('k', n=(lambda t: {x}.append(1) or len({x}), 'long'))"),
    "a condition and the next": (
        "",
        "return s.match(by='k', pattern=[ab.step('a', lambda t: {x}.append(1) or len({x}) > 0), "
        "ab.step('b', lambda t, m: len({x}) % 2 == 0)], emit=lambda m: (m.b[0].k, len(m.a)), schema=OUT)",
    ),
    "what tells a deletion and itself": (
        "",
        "return s.changes(by='k', deleted=lambda t: {x}.append(1) or len({x}) % 2 == 0)",
    ),
    "a join's function and itself": (
        "def both(a, b):\n    {x}.append(a.x)\n    return a.k, len({x})\n",
        "return s.join(s, by='k', window=ab.count(2), function=both, schema=OUT)",
    ),
}  # fmt: skip

ROWS = [("abc"[at % 3], at) for at in range(14)]
RULES = [(1,), (2,)]


@dataclasses.dataclass(frozen=True)
class HandedOver:
    """A program, as the text of a module whose `made(s, rules)` gives its streams."""

    title: str
    text: str
    is_fresh: bool

    def streams(self) -> Any:
        """The program over rows."""
        file = f"<handed over {next(_serial)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        space: dict[str, Any] = {"__name__": "fuzzed", "ab": ab}
        exec(compile(self.text, file, "exec", dont_inherit=True), space)
        rules = ab.from_rows(RULES, "y long")
        return space["made"](ab.from_rows(ROWS, "k string, x long", rows_per_epoch=4), rules)


def programs(seed: int, detours: bool = True) -> Iterator[HandedOver]:
    """Every pair with every holder, each by a detour of its own; and every pair with an object that is new."""
    choice = Random(seed)
    for pair, (defined, put) in PAIRS.items():
        for holder, (top, given) in {**HOLDERS, "": FRESH}.items():
            wrapped = (
                choice.choice(_PLAIN).replace("X", given) if detours and holder and choice.random() < 0.5 else given
            )
            yield HandedOver(
                f"{pair}, from {holder or 'nowhere'} by {wrapped}", _text(defined, put, top, wrapped), not holder
            )


def _text(defined: str, put: str, top: str, given: str) -> str:
    body = f"held = []\n{defined.replace('{x}', given)}\n{put.replace('{x}', given)}"
    inside = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    custom = (
        "def custom(s, create, add, result):\n"
        "    return s.aggregate(by='k', window=ab.tumbling(2), n=ab.agg.custom(create, add, result, 'long', 'x'))\n"
    )
    return f"{HEAD}{HELPERS}\nOUT = 'k string, n long'\n\n{top}\n\n{custom}\n\ndef made(s, rules):\n{inside}\n"
