"""The application kernels of *Safe* and *Elastic* as chains of regions.

Seconds per tuple are those of *Safe*, Table 2. What the papers do not give is the cost of the sequential parts that
end the scaling; each is set once, from the speed-up at which the paper says they do (`ceiling`). So the height of the
ceiling is the paper's; that it is reached, with how many channels, and what a controller makes of it, is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.papers.machine.description import Region
from anabranch.program.model import Selectivity
from experiments._streams import RECEIVE_S, SEND_S

TRANSPORT_S = RECEIVE_S + SEND_S
QUEUE = 16
"""Short, because adaptation periods are: a queue is worked off before a change of channels."""


@dataclass(frozen=True)
class Kernel:
    """A chain; `parallel` says which of its regions may be replicated."""

    name: str
    regions: tuple[Region, ...]
    parallel: tuple[bool, ...]
    period_s: float = 0.02
    """An adaptation period of some hundred tuples of the slowest part."""


def finance(ceiling: float) -> Kernel:
    """Project, Vwap per symbol, Combine (two streams in timestamp order: sequential), Bargains."""
    vwap_s = 81e-6 + TRANSPORT_S
    regions = (
        _region("Project", 26e-6),
        _region("Vwap", 81e-6, key=0),
        _sequential("Combine", vwap_s / ceiling),
        _region("Bargains", 2.5e-6),
    )
    return Kernel("Finance", regions, (True, True, False, True))


def twitter(ceiling: float | None) -> Kernel:
    """One stateless region with a prolific operator; the source's I/O is the ceiling."""
    nlp = _region("NLP", 133e-6, emits=Selectivity.ANY, **_source(133e-6, ceiling))
    return Kernel("Twitter NLP", (nlp,), (True,))


def page_rank(ceiling: float | None) -> Kernel:
    """MulAdd in parallel, Add in sequence. A tuple takes 11 s."""
    regions = [_region("MulAdd", 11.0, key=0)]
    if ceiling is not None:
        regions.append(_sequential("Add", 11.0 / ceiling))
    return Kernel("PageRank", tuple(regions), (True, False)[: len(regions)], period_s=2000.0)


def network(ceiling: float) -> Kernel:
    """ParseLines, DupSplit (sequential), ParseFailures per host, Logins (cheap: few tuples take that path)."""
    regions = (
        _region("ParseLines", 33e-6),
        _sequential("DupSplit", (33e-6 + TRANSPORT_S) / ceiling),
        _region("ParseFailures", 23e-6, key=0),
        _region("Logins", 0.5e-6),
    )
    return Kernel("Network", regions, (True, False, True, True), period_s=0.01)


def network_shuffled() -> Kernel:
    """*Safe*'s: filters per server, a shuffle, filters per user."""
    regions = (_region("Left", 33e-6, key=0), _region("Right", 23e-6, key=1, shuffled=True))
    return Kernel("Network monitoring", regions, (True, True))


def twitter_cep() -> Kernel:
    """Parse, a shuffle by author, Match."""
    regions = (_region("Parse", 140e-6), _region("Match", 3.5e-3, key=1, shuffled=True))
    return Kernel("Twitter CEP", regions, (True, True))


def _region(name: str, seconds: float, **more) -> Region:
    costs = {"split_cost_s": SEND_S, "merge_cost_s": RECEIVE_S, **more}
    return Region(name, cost_s=seconds + TRANSPORT_S, queue=QUEUE, **costs)


def _sequential(name: str, cost_s: float) -> Region:
    return Region(name, cost_s=cost_s, queue=QUEUE)


def _source(work_s: float, ceiling: float | None) -> dict[str, float]:
    return {} if ceiling is None else {"split_cost_s": (work_s + TRANSPORT_S) / ceiling}
