"""What holds in the thread that starts a query holds wherever its operators run: threads, processes, event loops."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import locale
import os
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.engine.thread_settings import ThreadSettings
from anabranch.errors import ProgramError
from anabranch.program.travelling import packed
from anabranch.testing import run_parallel

SCHEMA = "x long, name string, value string"
TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


def divided() -> str:
    try:
        return str(np.float64(1.0) / np.float64(0.0))
    except FloatingPointError:
        return "raised"


def warned() -> str:
    try:
        warnings.warn("mind this", FutureWarning, stacklevel=1)
    except FutureWarning:
        return "raised"
    return "told"


def settings(t) -> Iterator[tuple[int, str, str]]:
    """What each setting makes of a tuple."""
    yield t.x, "decimals", str(decimal.Decimal(1) / (t.x + 3))
    yield t.x, "errors", divided()
    yield t.x, "printing", str(np.array([t.x / 7]))
    yield t.x, "warnings", warned()
    yield t.x, "digits", str(sys.get_int_max_str_digits())
    yield t.x, "depth", str(sys.getrecursionlimit() >= 1200)
    yield t.x, "zone", time.strftime("%H", time.localtime(t.x))
    yield t.x, "locale", locale.setlocale(locale.LC_TIME)


def named(t) -> Iterator[tuple[int, str, str]]:
    yield t.x, "variable", TENANT.get()


async def settings_later(t):
    for each in [*settings(t), *named(t)]:
        await asyncio.sleep(0)
        yield each


def all_settings(t) -> Iterator[tuple[int, str, str]]:
    yield from settings(t)
    yield from named(t)


@pytest.fixture
def changed() -> Iterator[None]:
    """Every setting is another than the one a process begins with."""
    digits, depth, zone = sys.get_int_max_str_digits(), sys.getrecursionlimit(), os.environ.get("TZ")
    time_locale = locale.setlocale(locale.LC_TIME)
    before = TENANT.set("of the start")
    errors, printing = np.errstate(all="raise"), np.printoptions(precision=2)
    with decimal.localcontext() as context, errors, printing, warnings.catch_warnings():
        context.prec = 5
        context.rounding = decimal.ROUND_UP
        warnings.simplefilter("error", FutureWarning)
        sys.set_int_max_str_digits(9_999)
        sys.setrecursionlimit(max(depth, 1_200))
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        locale.setlocale(locale.LC_TIME, "C.UTF-8")
        yield
    locale.setlocale(locale.LC_TIME, time_locale)
    sys.set_int_max_str_digits(digits)
    sys.setrecursionlimit(depth)
    if zone is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = zone
    time.tzset()
    TENANT.reset(before)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (settings, None),
        (all_settings, {"min_workers": 3}),
        (all_settings, {"timeout": 60.0, "min_workers": 2}),
        (settings_later, {}),
        (settings_later, {"timeout": 60.0}),
        (all_settings, {"workers": "processes", "max_workers": 1}),
    ],
    ids=["plain", "threads", "threads with a timeout", "async", "async with a timeout", "processes"],
)
def test_settings_of_the_start_hold_where_operators_run(changed, function: Any, options: Any) -> None:
    source = ab.from_rows([(n,) for n in range(4)], "x long")
    elastic = {} if options is None else {"elastic": True, **options}
    stream = source.flat_map(function, SCHEMA, **elastic)
    plain = all_settings if function is settings_later else function
    expected = [each for n in range(4) for each in plain(types.SimpleNamespace(x=n))]
    assert {value for _, name, value in expected if name == "errors"} == {"raised"}
    assert [tuple(row) for row in stream.run_sequential()] == expected
    assert [tuple(row) for row in run_parallel(stream, channels=2)] == expected


def test_what_a_call_changes_is_not_what_the_next_one_meets() -> None:
    def spoils(t):
        found = decimal.getcontext().prec
        exec("decimal.getcontext().prec = 3")  # what is seen to change it is refused
        return (t.x, found)

    before = decimal.getcontext().prec
    stream = ab.from_rows([(n,) for n in range(40)], "x long").map(
        spoils, "x long, prec long", elastic=True, min_workers=4, timeout=60.0
    )
    assert {row.prec for row in run_parallel(stream)} == {before}
    assert decimal.getcontext().prec == before


def test_settings_reach_a_process_that_has_none_of_them(changed, tmp_path) -> None:
    node = ab.from_rows([], "x long").flat_map(all_settings, SCHEMA, elastic=True)._node
    (tmp_path / "program").write_bytes(packed(node, [node], ThreadSettings.here()))
    child = """
        import sys, types
        from anabranch.program.travelling import unpacked
        node, settings = unpacked(open(sys.argv[1], "rb").read())
        settings.hold()
        settings.hold()
        print([tuple(each) for each in node.logic.function.function(types.SimpleNamespace(x=1))])
    """
    child = "\n".join(line[8:] for line in child.splitlines())
    environment = {name: value for name, value in os.environ.items() if name != "TZ"}
    run = subprocess.run(
        [sys.executable, "-c", child, str(tmp_path / "program")], capture_output=True, text=True, env=environment
    )
    assert run.stdout.strip() == str(list(all_settings(types.SimpleNamespace(x=1)))), run.stderr


def test_a_variable_that_cannot_travel_is_refused() -> None:
    space: dict[str, Any] = {"__name__": "asks_a_tenant", "lock": threading.Lock(), "TENANT": TENANT}
    module = types.ModuleType("asks_a_tenant")
    exec("def ask(t):\n    with lock:\n        return (t.x, TENANT.get())", space)
    vars(module).update(space)
    sys.modules["asks_a_tenant"] = module
    node = ab.from_rows([], "x long").map(space["ask"], "x long, tenant string", elastic=True)._node
    try:
        token = TENANT.set("of the start")
        with pytest.raises(ProgramError, match="context variable 'tenant' has a value in the thread that starts"):
            packed(node, [node], ThreadSettings.here())
        TENANT.reset(token)
        packed(node, [node], ThreadSettings.here())
    finally:
        del sys.modules["asks_a_tenant"]


def test_a_locale_that_a_host_lacks_is_told() -> None:
    here = ThreadSettings.here().of_process
    elsewhere = type(here)(**{**vars(here), "process": "another", "locales": {"LC_TIME": "xx_XX.UTF-8"}})
    with pytest.raises(ProgramError, match=r"LC_TIME='xx_XX.UTF-8', and the host .* has no such locale"):
        elsewhere.hold()
    type(here)(**{**vars(here), "process": "another", "locales": {"LC_CTYPE": "xx_XX.UTF-8"}}).hold()
