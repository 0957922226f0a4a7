"""Functions that depend on, or do, more than their arguments say: clocks, randomness, input and output.

They are named to be refused; nothing here is ever called.
"""

from __future__ import annotations

import builtins
import datetime
from typing import Any
from uuid import uuid1, uuid4

#: Functions that do something a tuple's value does not decide, and what that is.
IMPURE_MODULES: dict[str, str] = {
    "time": "reads the clock",
    "random": "draws a random number from a generator that all calls share",
    "secrets": "draws a random number",
    "numpy.random": "draws a random number from a generator that all calls share",
    "os": "uses the operating system",
    "sys": "uses the interpreter's own state",
    "io": "does input or output",
    "socket": "does input or output",
    "subprocess": "starts a process",
    "threading": "uses threads",
    "_thread": "uses threads",
    "concurrent.futures": "uses threads",
    "multiprocessing": "uses processes",
    "asyncio": "uses an event loop",
    "requests": "does input or output",
    "urllib.request": "does input or output",
    "http.client": "does input or output",
    "shutil": "does input or output",
    "pathlib": "does input or output",
    "sqlite3": "does input or output",
    "tempfile": "does input or output",
    "gc": "uses the interpreter's own state",
    "inspect": "looks at the running program",
    "contextvars": "uses state of the thread",
    "locale": "uses state of the process",
}
IMPURE: dict[Any, str] = {
    open: "does input or output",
    input: "does input or output",
    id: "uses the address of an object, which differs from process to process",
    hash: "uses hash(), which for strings differs from process to process",
    uuid1: "draws a random number",
    uuid4: "draws a random number",
    globals: "reaches every global by name",
    locals: "reaches every local by name",
    vars: "reaches every attribute by name",
    eval: "runs code that is not in the source",
    exec: "runs code that is not in the source",
    compile: "runs code that is not in the source",
    __import__: "imports a module by name",
    dir: "reaches every attribute by name",
    object.__setattr__: "sets attributes by name",
    builtins.breakpoint: "stops the program",
}
IMPURE_METHODS: dict[tuple[type, str], str] = {
    (datetime.datetime, "now"): "reads the clock",
    (datetime.datetime, "utcnow"): "reads the clock",
    (datetime.datetime, "today"): "reads the clock",
    (datetime.date, "today"): "reads the clock",
    (datetime.datetime, "fromtimestamp"): "uses the machine's time zone",
    (datetime.date, "fromtimestamp"): "uses the machine's time zone",
}
#: Reasons why nobody can say what another run would give.
_CHANCE = frozenset(
    {
        "reads the clock",
        "draws a random number",
        "draws a random number from a generator that all calls share",
        "uses the address of an object, which differs from process to process",
        "uses hash(), which for strings differs from process to process",
    }
)
_OF_THE_PROCESS = frozenset(
    {"environ", "environb", "getenv", "getenvb", "urandom", "getrandom", "getpid", "getppid", "times", "cpu_count"}
    | {"uname", "getlogin", "getcwd", "getloadavg", "get_ident", "get_native_id", "current_thread"}
)


# Functions of the module `time` that read no clock, given so many arguments.
_GIVEN_A_TIME = {
    "sleep": 0,
    "gmtime": 1,
    "localtime": 1,
    "ctime": 1,
    "asctime": 1,
    "mktime": 1,
    "strptime": 1,
    "strftime": 2,
}


def is_chance(why: str, name: str, arguments: int = 0) -> bool:
    """Whether what is impure, and is called so, is the clock, chance or the process: no two runs need agree on it."""
    return (why in _CHANCE and arguments < _GIVEN_A_TIME.get(name, 100)) or name in _OF_THE_PROCESS
