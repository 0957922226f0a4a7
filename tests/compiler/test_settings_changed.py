"""Calls that change a setting of the thread or the process: no other channel would see it, so they are refused."""

from __future__ import annotations

import contextvars
import decimal
import locale
import os
import re
import socket
import sys
import time

import numpy as np
import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import run_parallel

SCHEMA = "i long, x long"
VARIABLE = contextvars.ContextVar("VARIABLE", default=0)


def variable(t):
    VARIABLE.set(t.x)
    return (t.i, VARIABLE.get())


def precision(t):
    decimal.getcontext().prec = 3
    return (t.i, len(str(decimal.Decimal(1) / 3)))


def precision_by_name(t):
    context = decimal.getcontext()
    if t.i == 3:
        context.prec += 1
    return (t.i, context.prec)


def traps(t):
    decimal.getcontext().traps[decimal.Inexact] = True
    return (t.i, t.x)


def whole_context(t):
    decimal.setcontext(decimal.Context(prec=3))
    return (t.i, t.x)


def errors(t):
    np.seterr(divide="raise")
    return (t.i, t.x)


def printing(t):
    np.set_printoptions(precision=2)
    return (t.i, len(str(np.array([t.x / 3]))))


def depth(t):
    sys.setrecursionlimit(5000)
    return (t.i, t.x)


def digits(t):
    sys.set_int_max_str_digits(5000)
    return (t.i, t.x)


def directory(t):
    os.chdir("/")
    return (t.i, t.x)


def rights(t):
    os.umask(0o22)
    return (t.i, t.x)


def language(t):
    locale.setlocale(locale.LC_NUMERIC, "C")
    return (t.i, t.x)


def zone(t):
    time.tzset()
    return (t.i, t.x)


def patience(t):
    socket.setdefaulttimeout(3)
    return (t.i, t.x)


SETTERS = [
    *(variable, precision, precision_by_name, traps, whole_context, errors, printing),
    *(depth, digits, directory, rights, language, zone, patience),
]


def source() -> ab.Stream:
    return ab.from_rows([(i, i % 5) for i in range(24)], SCHEMA, rows_per_epoch=8)


def operator(function):
    class Calls(ab.Operator):
        def process(self, t):
            yield function(t)

    return Calls()


@pytest.mark.parametrize("function", SETTERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "made",
    [
        lambda f: source().map(f, SCHEMA),
        lambda f: source().process(operator(f), by="x", schema=SCHEMA),
        lambda f: source().process(operator(f), schema=SCHEMA),
        lambda f: source().map(f, SCHEMA, elastic=True),
        lambda f: source().map(f, SCHEMA, elastic=True, workers="processes"),
        lambda f: source().filter(lambda t: f(t)[1] > 1),
    ],
    ids=["map", "by key", "process", "elastic", "processes", "filter"],
)
def test_a_setting_that_stays_changed_is_refused_with_its_line(function, made):
    line = function.__code__.co_firstlineno
    with pytest.raises(ProgramError, match=r"changes |context of the thread outlives") as refused:
        run_parallel(made(function), channels=3)
    told = [int(number) for number in re.findall(r"(?:line |\.py:)(\d+)", str(refused.value))]
    assert any(line < number < line + 6 for number in told), str(refused.value)


def for_a_while(t):
    with decimal.localcontext() as context:
        context.prec = 3 + t.x
        return (t.i, len(str(decimal.Decimal(1) / 3)))


def put_back(t):
    token = VARIABLE.set(t.x)
    try:
        return (t.i, VARIABLE.get())
    finally:
        VARIABLE.reset(token)


def numpy_for_a_while(t):
    with np.errstate(divide="ignore"), np.printoptions(precision=2):
        return (t.i, len(str(np.float64(1) / np.float64(t.x))))


def context_of_its_own(t):
    context = decimal.getcontext().copy()
    context.prec = 4
    return (t.i, len(str(context.divide(1, 3))) + decimal.getcontext().prec)


@pytest.mark.parametrize(
    "function", [for_a_while, put_back, numpy_for_a_while, context_of_its_own], ids=lambda each: each.__name__
)
def test_one_that_is_put_back_runs(function):
    stream = source().process(operator(function), by="x", schema=SCHEMA)
    assert run_parallel(stream, channels=3) == stream.run_sequential()
    stream = source().map(function, SCHEMA, elastic=True)
    assert run_parallel(stream, channels=3) == stream.run_sequential()


class SetsUp(ab.Operator):
    def open(self):
        os.umask(0o22)
        socket.setdefaulttimeout(None)

    def process(self, t):
        yield (t.i, t.x)


def test_what_an_elastic_operator_sets_up_is_its_own_affair():
    stream = source().process(SetsUp(), schema=SCHEMA, elastic=True, workers="processes", max_workers=1)
    assert run_parallel(stream) == stream.run_sequential()
