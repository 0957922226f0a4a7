"""Operators in good style and bad, each with the verdict the compiler must give, stored beside it.

`expect` registers a factory of operators (a class, or a function that makes one); `expect_function` a
plain function. `truth` says if a person would call the operator safe to run in parallel: a verdict of
"unknown" for a safe one is a miss (counted, never wrong), a verdict of "stateless" or "partitioned" for an
unsafe one is unsound.
"""

import dataclasses
from typing import Any, Callable

from anabranch.program.schema import Schema

SCHEMA = Schema.of("id long, name string, value double, count long, items array<double>, day date")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Any]
    verdict: str
    truth: str
    mode: str
    key: str
    selectivity: str
    by: tuple


CASES: list[Case] = []


def expect(verdict, truth=None, mode="process", key="", selectivity="", by=(), name=None):
    def register(factory):
        given = truth or ("unsafe" if verdict == "unknown" else "safe")
        CASES.append(Case(name or factory.__name__, factory, verdict, given, mode, key, selectivity, tuple(by)))
        return factory

    return register


def expect_function(verdict, **more):
    def register(function):
        expect(verdict, name=function.__name__, **more)(lambda: function)
        return function

    return register


def load():
    from tests.compiler.corpus import (
        aliasing,
        attacks,
        dicts,
        good,
        hidden,
        idioms,
        impure,
        reviewed,
        stateless,
        tricky,
    )

    return CASES, (aliasing, attacks, dicts, good, hidden, idioms, impure, reviewed, stateless, tricky)
