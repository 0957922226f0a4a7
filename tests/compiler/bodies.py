"""Random bodies of `process`: a grammar of Python statements over a tuple, three state fields and some locals.

Every body is a text that Python compiles. What it does is not always sensible: it divides by zero, reads locals that
are not bound, takes the next of nothing. That is the point: a rewritten method must fail where the method fails.
"""

from __future__ import annotations

import random
import re

FLOATS = ("0.0", "-0.0", "1.5", "-2.25", "1e300", "float('inf')", "float('nan')")
INTEGERS = ("0", "1", "-1", "3", "7", "2**62", "-(2**63)")
TEXTS = ("''", "'a'", "'é'", "'longer text'")


class Body:
    """One random body."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.loops = 0
        self.budget = self.random.randint(3, 14)
        self.binds_first = seed % 3 == 0
        """Whether all locals are bound before anything else: such a body can be that of a loop over tuples."""
        self.emits_once = seed % 6 == 0

    def text(self) -> str:
        if self.binds_first:
            for name in ("u", "v", "w", "q", "i", "j"):
                self.say(2, f"{name} = {self.integer()}")
        self.block(2, at_least=2)
        return "\n".join([*self.lines, "        yield t.k, float(self.a), self.c"])

    def say(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, at_least: int = 1) -> None:
        count = max(at_least, self.random.randint(1, 3))
        for _ in range(count):
            self.statement(indent)

    # -- statements -----------------------------------------------------------------------------------------

    def statement(self, indent: int) -> None:
        self.budget -= 1
        simple = [self.assign, self.add, self.emit, self.emit, self.unpack, self.walrus, self.check]
        nested = [self.condition, self.loop, self.guard, self.choose, self.within, self.repeat]
        if self.binds_first:
            emits = [] if self.emits_once else [self.emit]
            simple = [self.assign, self.add, self.assign, self.add, *emits]
            nested = [self.condition, self.condition, self.loop, self.repeat, self.guard]
        kinds = simple if self.budget < 0 or indent > 5 else simple + nested
        if self.loops and self.random.random() < 0.15:
            self.say(indent, self.random.choice(["break", "continue"]))
            return
        if self.random.random() < 0.04:
            self.say(indent, "return")
            return
        self.random.choice(kinds)(indent)

    def assign(self, indent: int) -> None:
        target = self.random.choice(["u", "v", "w", "self.a", "self.b", "self.c"])
        kind = {"self.a": self.integer, "self.b": self.floating, "self.c": self.words}.get(target)
        value = kind() if kind else self.random.choice([self.integer, self.floating, self.words])()
        self.say(indent, f"{target} = {value}")

    def add(self, indent: int) -> None:
        target, value = self.random.choice(
            [("self.a", self.small()), ("self.b", self.floating()), ("self.c", self.words()), ("u", self.integer())]
        )
        sign = self.random.choice(["+=", "-=", "*="]) if target != "self.c" else "+="
        self.say(indent, f"{target} {sign} {value}" if target != "self.c" else f"self.c = (self.c + {value})[-20:]")

    def emit(self, indent: int) -> None:
        self.say(
            indent,
            self.random.choice(
                [
                    f"yield t.k, {self.floating()}, {self.words()}",
                    f"yield ({self.integer()}, {self.floating()}, self.c)",
                    f"yield {{'k': t.k, 'y': {self.floating()}, 's': t.s}}",
                    f"yield [t.k, {self.floating()}, {self.words()}]",
                    f"yield (t.k, {self.floating()}, {self.words()}) if {self.test()} else (t.k, 0.0, '')",
                    "yield t.k, t.x, f'{t.n}:{self.c!r:>5}'",
                    "yield t.k, 0.5, 'right' if t.n < 4 else 3",
                ]
            ),
        )

    def unpack(self, indent: int) -> None:
        self.say(
            indent,
            self.random.choice(
                [
                    f"u, v = {self.integer()}, {self.floating()}",
                    f"u, *w = [{self.integer()} for _ in range({self.random.randint(0, 3)})]",
                    "self.a, self.b = self.a + 1, self.b - t.x",
                    "(u, v), w = (t.k, t.x), t.s",
                    "del u",
                ]
            ),
        )

    def walrus(self, indent: int) -> None:
        self.say(indent, f"v = [w for i in range(3) if (w := i + {self.small()}) > {self.small()}]")

    def check(self, indent: int) -> None:
        self.say(
            indent,
            self.random.choice(
                [
                    f"assert {self.test()}, 'a test of its own'",
                    f"u = next(i for i in range({self.random.randint(0, 4)}) if i > {self.small()})",
                    f"u = (lambda i: i + t.n + self.a)({self.small()})",
                    f"u = {{i: t.x for i in range({self.random.randint(0, 3)})}}.get({self.small()})",
                    f"u = sorted([t.n, {self.small()}, self.a], key=lambda i: -i)[0]",
                ]
            ),
        )

    def condition(self, indent: int) -> None:
        self.say(indent, f"if {self.test()}:")
        self.block(indent + 1)
        if self.random.random() < 0.5:
            self.say(indent, f"elif {self.test()}:")
            self.block(indent + 1)
        if self.random.random() < 0.5:
            self.say(indent, "else:")
            self.block(indent + 1)

    def loop(self, indent: int) -> None:
        name = self.random.choice(["i", "j", "u"])
        self.say(indent, f"for {name} in range({self.random.randint(0, 3)}):")
        self.loops += 1
        self.block(indent + 1)
        self.loops -= 1
        if self.random.random() < 0.3:
            self.say(indent, "else:")
            self.block(indent + 1)

    def repeat(self, indent: int) -> None:
        self.say(indent, "w = 3")
        self.say(indent, "while w > 0:")
        self.say(indent + 1, "w -= 1")
        self.say(indent + 1, f"if {self.test()}:")
        self.say(indent + 2, "break")
        self.say(indent + 1, f"self.a += {self.small()}")

    def guard(self, indent: int) -> None:
        self.say(indent, "try:")
        self.block(indent + 1)
        if self.random.random() < 0.8:
            name = self.random.choice(["", " as problem", " as u", " as t" if self.random.random() < 0.2 else ""])
            kind = self.random.choice(["ZeroDivisionError", "Exception", "(NameError, TypeError)", "StopIteration"])
            self.say(indent, f"except {kind}{name}:")
            self.block(indent + 1)
            if self.random.random() < 0.3:
                self.say(indent, "else:")
                self.block(indent + 1)
            if self.random.random() < 0.7:
                return
        self.say(indent, "finally:")
        loops, self.loops = self.loops, 0
        self.assign(indent + 1)
        self.loops = loops

    def within(self, indent: int) -> None:
        self.say(indent, f"with suppress({self.random.choice(['ZeroDivisionError', 'Exception', 'KeyError'])}) as u:")
        self.block(indent + 1)

    def choose(self, indent: int) -> None:
        self.say(indent, self.random.choice(["match t.k:", "match (t.n, self.a):", "match {'s': t.s, 'n': t.n}:"]))
        pattern = self.random.choice(
            ["0", "1 | 2", "(0, _)", "(u, v) if u == v", "{'s': 'a', **w}", "[first, *w]", "int() as u"]
        )
        self.say(indent + 1, f"case {pattern}:")
        self.block(indent + 2)
        self.say(indent + 1, self.random.choice(["case _:", "case u:"]))
        self.block(indent + 2)

    # -- expressions ----------------------------------------------------------------------------------------

    def small(self) -> str:
        return self.random.choice(["0", "1", "2", "t.n", "self.a % 7", "len(t.s)", "t.k"])

    def integer(self) -> str:
        return self.random.choice(
            [
                *INTEGERS,
                "t.n",
                "t.k",
                "self.a",
                f"t.n % {self.small()}",
                f"self.a // {self.small()}",
                f"({self.small()} + {self.small()})",
                f"({self.small()} if {self.test()} else -1)",
                "sum([t.n * i for i in range(3)])",
                "len(f'{t.s}{self.a:>3}')",
                "max(t.n, self.a)",
                "-t.n ** 2",
                "(t.n << 2 | 1) & 255",
            ]
        )

    def floating(self) -> str:
        return self.random.choice(
            [
                *FLOATS,
                "t.x",
                "self.b",
                "t.x + self.b",
                "t.x * t.x - self.b",
                "t.x / t.n",
                "self.b / (self.a - 2)",
                "float(t.n)",
                "abs(t.x)",
                "min(t.x, self.b)",
                "(t.x if t.x > self.b else self.b)",
                "float(int(t.x % 5.0))",
            ]
        )

    def words(self) -> str:
        return self.random.choice([*TEXTS, "t.s", "self.c", "t.s.upper()", "f'{t.n:03d}'", "t.s[::-1]", "str(t.x)"])

    def test(self) -> str:
        return self.random.choice(
            [
                "t.n > 2",
                "0 <= t.n < self.a",
                "t.x != t.x",
                "t.s == 'a' or self.a > 3",
                "not t.n",
                "t.s in ('a', 'b', self.c)",
                "self.b >= t.x",
                "(q := t.n + 1) % 2 and q > 1",
                "t.n is None",
                "any(i == t.n for i in range(self.a % 5))",
                "True",
            ]
        )


def source_of(seed: int, name: str, returns: bool = False) -> str:
    """The source of an operator with a random body; if it is to, it returns what it would yield, and ends there."""
    body = Body(seed).text()
    body = body.replace("yield [", "return [[").replace("yield ", "return ") if returns else body
    body = re.sub(r"return \[\[(.*)\]$", r"return [(\1)]", body, flags=re.MULTILINE)
    return (
        f"class {name}(ab.Operator):\n"
        "    a: int = ab.state(default=0)\n"
        "    b: float = ab.state(default=0.0)\n"
        "    c: str = ab.state(default='')\n\n"
        "    def process(self, t):\n"
        f"{body}\n\n\n"
    )
