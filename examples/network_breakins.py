"""Network monitoring, as in *Elastic*: successful logins that many failed ones from the same host came before.

                             ┌─ parse failures ─ attacks {host} ─┐
    lines ─ parse ─ split ───┤                                   enrich {host} ─ filter ─►
                             └─ parse logins ────────────────────┘

The lines are what sshd writes to a server's log. Five failures from one host within a minute are an attack; who logs
in from that host in the ten minutes after it has probably broken in.

    python examples/network_breakins.py --records 50000 --channels 4
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import anabranch as ab
from anabranch import agg, sliding

LINES = {"lines": "line string"}

LINE = re.compile(r"(\w{3}) +(\d+) (\d\d):(\d\d):(\d\d) (\S+) sshd\[\d+\]: (.*)")
FAILURE = re.compile(r"Failed password for (?:invalid user )?(.*) from (\S+) port \d+")
LOGIN = re.compile(r"Accepted \w+ for (.*) from (\S+) port \d+")
REPEATED = re.compile(r"message repeated (\d+) times")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
MANY = 5


class Entry(NamedTuple):
    """A line of sshd. The log does not say which year it is: the time is in seconds since its beginning."""

    time: int
    server: str
    message: str


class Attempt(NamedTuple):
    """Somebody tried to log in."""

    time: int
    host: str
    user: str


def parse_line(t: Any) -> Iterator[Entry]:
    """What sshd wrote; other lines are dropped."""
    found = LINE.match(t.line)
    if found is not None:
        month, day, hours, minutes, seconds, server, message = found.groups()
        days = DAYS_BEFORE[MONTHS.index(month)] + int(day) - 1
        yield Entry(((days * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds), server, message)


def parse_failures(t: Any) -> Iterator[Attempt]:
    """A failure, or as many as the log says it was repeated."""
    found = FAILURE.search(t.message)
    repeated = REPEATED.match(t.message)
    if found is not None:
        for _ in range(1 if repeated is None else int(repeated.group(1))):
            yield Attempt(t.time, found.group(2), found.group(1))


def parse_login(t: Any) -> Iterator[Attempt]:
    """A login."""
    found = LOGIN.match(t.message)
    if found is not None:
        yield Attempt(t.time, found.group(2), found.group(1))


def program(lines: ab.Stream, within: int = 60, after: int = 600) -> ab.Stream:
    """Logins at most `after` seconds behind an attack: many failures of their host `within` seconds."""
    entries = lines.flat_map(parse_line, name="parse_lines")
    failed, accepted, _ = entries.split(
        lambda t: "Failed password" in t.message, lambda t: t.message.startswith("Accepted "), name="ways"
    )
    failures = failed.flat_map(parse_failures, name="parse_failures")
    logins = accepted.flat_map(parse_login, name="parse_logins")
    attacks = failures.aggregate(
        by="host",
        window=sliding(MANY, every=1),
        failures=agg.count(),
        first=agg.first("time"),
        last=agg.last("time"),
        name="attacks",
    ).filter(lambda t: t.failures == MANY and t.last - t.first <= within, name="many")
    return logins.enrich(attacks, by="host", how="inner", name="suspects").filter(
        lambda t: t.time - t.last <= after, name="breakins"
    )


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """A server that is attacked all the time, and sometimes with success; people who mistype their passwords."""
    chance = random.Random(seed)
    office = [f"10.0.{chance.randrange(4)}.{number}" for number in range(2, 40)]
    attackers = [".".join(str(chance.randrange(1, 255)) for _ in range(4)) for _ in range(40)]
    names = ["root", "admin", "oracle", "test", "webmaster"]
    rows: list[dict[str, Any]] = []
    clock, process = 0, 20_000

    def log(message: str, program: str = "sshd") -> None:
        at = f"{clock // 3600 % 24:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        rows.append({"line": f"Mar {1 + clock // 86400:2d} {at} gate {program}[{process}]: {message}"})

    while len(rows) < count:
        clock += chance.randrange(4)
        process += chance.randrange(3)
        port = chance.randrange(1024, 65536)
        if chance.random() < 0.25:
            host, user = chance.choice(office), f"user{chance.randrange(50)}"
            if chance.random() < 0.2:
                log(f"Failed password for {user} from {host} port {port} ssh2")
            log(f"Accepted password for {user} from {host} port {port} ssh2")
            log(f"pam_unix(sshd:session): session opened for user {user} by (uid=0)")
        elif chance.random() < 0.05:
            log("(root) CMD (run-parts /etc/cron.hourly)", "CRON")
        else:
            # Few hosts attack most of the time: bursts of one host are mixed with those of others.
            host = attackers[min(len(attackers) - 1, int(chance.paretovariate(0.6)) - 1)]
            user = chance.choice(names)
            if chance.random() < 0.1:
                user = f"invalid user {user}"
                log(f"{user.capitalize()} from {host}")
            log(f"Failed password for {user} from {host} port {port} ssh2")
            if chance.random() < 0.1:
                times = chance.randrange(2, 7)
                log(f"message repeated {times} times: [ Failed password for {user} from {host} port {port} ssh2]")
            if chance.random() < 0.02:
                log(f"Accepted password for root from {host} port {port} ssh2")
    return {"lines": rows[:count]}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, LINES, 50_000)


if __name__ == "__main__":
    main()
