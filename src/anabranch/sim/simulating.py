"""The front door: try a program on hosts, under a load and in trouble that are not there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.api.stream import Stream
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.source_spreading import SpreadSettings
from anabranch.engine.query_options import QueryOptions
from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Constant, Curve
from anabranch.sim.simulated_run import SimulatedRun
from anabranch.sim.simulation import Simulation
from anabranch.sim.situation import ALWAYS_MORE, AskedChannels, Crash, Keys, Situation
from anabranch.sim.work_costs import WorkCosts

EPOCHS_DEFAULT = 100


def simulate(
    stream: Stream | Sequence[Stream],
    *,
    load: Curve | float = ALWAYS_MORE,
    seconds: float = math.inf,
    epochs: int | None = None,
    rows_per_file: int | None = None,
    files_per_epoch: int | None = None,
    interval_s: float | None = None,
    slots: int = 4,
    hosts: Sequence[SimulatedHost] | None = None,
    costs: WorkCosts | Mapping[str, float] | None = None,
    selectivities: Mapping[str, float] | None = None,
    keys: Keys | Mapping[str, Keys] | None = None,
    asked: Sequence[AskedChannels] = (),
    crashes: Sequence[Crash] = (),
    executors_absent_s: float = 30.0,
    straggler_share: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    fast: bool | None = None,
    options: ElasticOptions | None = None,
    **query_options: Any,
) -> SimulatedRun:
    """Run a program in virtual time: the driver loop is the production's, time and hosts are not there.

    Parameters
    ----------
    stream : Stream or sequence of Stream
        The program. If its sources hold rows (`from_rows`), its operators run over them; else counts are worked out.
    load : curve or float
        Tuples per second of each source: `Constant`, `Steps`, `Sine`, `Bursts`, `Replay`, or a number.
    seconds, epochs : float, int
        When to end; 100 epochs if neither is given and the input does not end.
    rows_per_file, files_per_epoch, interval_s
        The sources' files, ``maxFilesPerTrigger`` and the trigger's interval.
    slots, hosts
        One host with so many slots; or hosts with slots, speeds and absences. Each has one executor.
    executors_absent_s
        With ``maxExecutors``: how long an executor that was asked for takes to come; it is like the first host.
    costs : WorkCosts or mapping
        What things take; a mapping: operator → seconds for a tuple.
    selectivities, keys
        Where no rows are run: tuples out for a tuple in, by operator; keys of the regions, of all or by name.
    asked, crashes, straggler_share, noise
        Rescalings by hand, and what goes wrong.
    fast : bool, optional
        Work counts out although there are rows.
    options, query_options
        As for a query: ``channels=4``, ``maxChannels=8``, ``epochTarget="2 seconds"``, ``policy="paper"``, …

    Examples
    --------
    >>> import anabranch as ab
    >>> stream = ab.from_rows([(at % 3, at) for at in range(60)], "k long, x long")
    >>> totals = stream.aggregate(by="k", window=ab.tumbling(5), total=ab.agg.sum("x"))
    >>> run = simulate(totals, load=30.0, rows_per_file=10, crashes=[Crash("sink written", 2)])
    >>> list(run.outputs[0]) == totals.run_sequential()
    True
    """
    parsed = QueryOptions.parse({name.lower(): _text(value) for name, value in query_options.items()})
    if not isinstance(costs, WorkCosts):
        costs = WorkCosts(operators=dict(costs or {}))
    by_region = keys if isinstance(keys, Mapping) else {}
    situation = Situation(
        load=Constant(float(load)) if isinstance(load, (int, float)) else load,
        rows_per_file=rows_per_file,
        seconds=seconds,
        epochs_max=epochs if epochs is not None else EPOCHS_DEFAULT if math.isinf(seconds) else 1_000_000,
        hosts=tuple(hosts) if hosts is not None else (SimulatedHost(slots=slots),),
        costs=costs,
        options=options if options is not None else parsed.elastic,
        files_per_epoch=files_per_epoch,
        interval_s=interval_s,
        balancing=parsed.balancing,
        spread_gain_s=SpreadSettings().gain_seconds if parsed.spread == "auto" else None,
        versions_kept=parsed.versions_kept,
        asked=tuple(asked),
        crashes=tuple(crashes),
        executors_absent_s=executors_absent_s,
        straggler_share=straggler_share,
        noise=noise,
        keys=by_region,
        keys_default=keys if isinstance(keys, Keys) else Keys(),
        selectivities=dict(selectivities or {}),
        seed=seed,
    )
    return Simulation(stream, situation, fast).run()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
