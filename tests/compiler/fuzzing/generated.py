"""Operators from scratch: pieces of state and of work put together, kept in places of many kinds.

By construction it is known whether an operator may run in parallel: all its state is indexed with the tuple's key, or
some is not, and then it is known which.
"""

from __future__ import annotations

import random
import textwrap

from tests.compiler.fuzzing.cells import KEYED, LOCAL, SHARED, Cell
from tests.compiler.fuzzing.trials import Program

HEAD = """\
import abc
import array
import bisect
import collections
import contextlib
import copy
import dataclasses
import datetime
import enum
import functools
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import statistics
import types

import numpy as np


"""
#: Where state is kept: at the top, in the class, in __init__, and what leads to it; `{n}` is its name, `{s}` its start.
PLACES: tuple[tuple[str, str, str, str], ...] = (
    ("", "", "self.{n} = {s}", "self.{n}"),
    ("", "", "self.{n} = {s}", "self.{n}"),
    ("", "", "self.{n} = {s}", "self.{n}"),
    ("", "{n} = {s}", "", "self.{n}"),
    ("{n} = {s}", "", "", "{n}"),
    ("class Box{n}:\n    def __init__(self):\n        self.{n} = {s}", "", "self.box{n} = Box{n}()", "self.box{n}.{n}"),
    ("class Box{n}:\n    {n} = {s}", "", "", "Box{n}.{n}"),
    ("", "", "self.all{n} = {{'{n}': {s}}}", "self.all{n}['{n}']"),
    ("", "", "self.all{n} = [{s}]", "self.all{n}[0]"),
    ("@dataclasses.dataclass\nclass Box{n}:\n    {n}: object", "", "self.box{n} = Box{n}({s})", "self.box{n}.{n}"),
    ("", "", "self.box{n} = types.SimpleNamespace({n}={s})", "self.box{n}.{n}"),
    ("{n}_at = [{s}]", "", "", "{n}_at[0]"),
)  # fmt: skip
KEYS = ("t.id", "t.id", "t.id", "t.name", "(t.id, t.name)", "t.id % 2", "t.name.lower()", "t.day")


def generated(seed: int) -> Program:
    """One random operator."""
    choice = random.Random(seed)
    kind = choice.choices(["local", "keyed", "shared", "two keys"], [1, 5, 3, 1])[0]
    key = choice.choice(KEYS)
    heads: list[str] = []
    inside: list[str] = []
    starts: list[str] = []
    body: list[str] = []
    results: list[str] = []
    culprits: list[str] = []

    def add(cell: Cell, key: str, is_culprit: bool) -> None:
        number = len(results)
        name, result = f"held{number}", f"r{number}"
        top, within, start, way = choice.choice(PLACES)
        if cell.start:
            for text, into in ((top, heads), (within, inside), (start, starts)):
                if text:
                    into.append(text.format(n=name, s=cell.start))
        if cell.head and cell.head not in heads:
            heads.insert(0, cell.head)
        if is_culprit:
            culprits.append(name)
        text = cell.body.replace("{d}", way.format(n=name)).replace("{k}", key)
        text = text.replace("{r}", result).replace("{i}", str(number)).replace("{{", "{").replace("}}", "}")
        if way == "{n}" and any(f"{name} {sign}" in text for sign in ("=", "+=", "|=")):
            text = f"global {name}\n{text}"
        body.append(text)
        results.append(result)

    for _ in range(choice.randint(0, 2 if kind == "keyed" else 1)):
        add(choice.choice(LOCAL), "", False)
    if kind == "keyed":
        for _ in range(choice.randint(1, 2)):
            add(choice.choice(KEYED), key, False)
    elif kind == "shared":
        if choice.random() < 0.4:
            add(choice.choice(KEYED), key, False)
        add(choice.choice(SHARED), key, True)
    elif kind == "two keys":
        for each in ("t.id", "t.name"):
            add(choice.choice(KEYED), each, True)
    if not results:
        add(choice.choice(LOCAL), "", False)
    choice.shuffle(body)
    shown = "|".join(f"{{{result}}}" for result in results)
    lines = [*body, f"yield t.but(name=f'{shown}')"]
    text = HEAD + "".join(f"{head.strip()}\n\n\n" for head in heads) + "class Operator:\n"
    text += "".join(f"    {each}\n" for each in inside)
    if starts:
        text += "    def __init__(self):\n" + "".join(f"        {each}\n" for each in starts) + "\n"
    text += "    def __call__(self, t):\n" + textwrap.indent("\n".join(_globals_first(lines)), "        ") + "\n"
    truth = "safe" if kind in ("keyed", "local") else "unsafe"
    return Program(f"generated {seed}", text, truth=truth, culprits=tuple(culprits))


def _globals_first(lines: list[str]) -> list[str]:
    """`global` stands before any use of the name."""
    split = [line for each in lines for line in each.split("\n")]
    first = [line for line in split if line.startswith("global ")]
    return [*first, *(line for line in split if not line.startswith("global "))]
