"""Network monitoring, as in *Safe*: users who behave suspiciously, found in the logs of many servers.

    entries ─ compare {server} ─ filter ─┐ shuffle ┌─ aggregate {user} ─ filter ─►

What is much for one server is little for another, so each entry is compared with what its server usually sends.
What is far above that is counted for its user, whichever servers it was on: five minutes with many such entries are
suspicious.

    python examples/network_servers.py --records 50000 --channels 4
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import anabranch as ab
from anabranch import agg, delta, tumbling

ENTRIES = {"entries": "time double, server string, user string, sent double"}


class Compared(NamedTuple):
    """An entry with how often its server's usual amount was sent."""

    time: float
    server: str
    user: str
    sent: float
    ratio: float


class Compare(ab.Operator):
    """What a server usually sends, as a mean that forgets."""

    weight: float = 0.05
    usual: float = ab.state(default=0.0)

    def process(self, t: Any) -> Any:
        ratio = t.sent / self.usual if self.usual > 0 else 1.0
        self.usual = t.sent if self.usual == 0 else self.usual + self.weight * (t.sent - self.usual)
        yield Compared(t.time, t.server, t.user, t.sent, ratio)


def program(entries: ab.Stream, ratio: float = 4.0, limit: int = 4) -> ab.Stream:
    """Users with at least so many entries, within five minutes, of so many times the usual amount."""
    unusual = entries.process(Compare(), by="server", schema=Compared, name="compare").filter(
        lambda t: t.ratio > ratio, name="unusual"
    )
    behaviour = unusual.aggregate(
        by="user",
        window=tumbling(delta("time", 300.0)),
        entries=agg.count(),
        sent=agg.sum("sent"),
        since=agg.first("time"),
        name="behaviour",
    )
    return behaviour.filter(lambda t: t.entries >= limit, name="suspicious")


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Servers of very different sizes; users who at times take away far more than others."""
    chance = random.Random(seed)
    servers = {f"server{number:02d}": 10 ** chance.uniform(2, 5) for number in range(30)}
    users = [f"user{number:03d}" for number in range(150)]
    weights = [1 / (rank + 3) for rank in range(len(users))]
    clock = 0.0
    rows = []
    for user in chance.choices(users, weights, k=count):
        clock += chance.expovariate(2.0)
        server = chance.choice(list(servers))
        greedy = user in users[::7] and clock % 1200 < 600
        sent = servers[server] * chance.lognormvariate(1.6 if greedy else -0.5, 0.8)
        rows.append({"time": round(clock, 3), "server": server, "user": user, "sent": round(sent, 1)})
    return {"entries": rows}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, ENTRIES, 50_000)


if __name__ == "__main__":
    main()
