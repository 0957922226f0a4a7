"""When channels are given back (P2): once the load has gone for good, as far as one can tell.

`patience` calm periods in a row, longer where measurements are noisy or channels were needed again soon before
  └─► room on average, noise allowed for; the load clearly below the one that channels were added for
        └─► as many as the mean takes at `contract_utilisation`, at least half
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anabranch.control.decision import Proposal
from anabranch.control.default_options import DefaultOptions
from anabranch.control.observation import Observation
from anabranch.control.policy_memory import PolicyMemory, RecentPeriod

NOISE_PER_PATIENCE = 0.1  # of so much noise each, channels are kept for as long again
REMOTE_PATIENCE_FACTOR = 2  # a neighbour downstream may be about to grow: its turn first


def given_back(
    memory: PolicyMemory,
    options: DefaultOptions,
    periods: Sequence[RecentPeriod],
    observation: Observation,
    error: float,
    calm: str,
    branch: str,
) -> Proposal:
    """Fewer channels, if they would do; the present number otherwise.

    Parameters
    ----------
    periods
        The latest at the present number of channels.
    error
        Of a period's measurements, relative.
    calm
        Why channels may be given back, for the reason.
    branch
        What holding is called: "hold", or "remote" where tuples wait for something downstream.
    """
    channels, remote = observation.channels, branch == "remote"

    def hold(why: str) -> Proposal:
        return Proposal(channels, branch, f"{why} (congestion {observation.congestion:.2f})")

    least = REMOTE_PATIENCE_FACTOR * options.patience if remote else options.patience
    factor = memory.kept_factor + int(error / NOISE_PER_PATIENCE)
    if factor > 1 and memory.calm_periods < least * factor:
        return hold(f"{calm}; channels were needed again soon before")
    # Where tuples waited downstream, the region was idle for another reason than too many channels.
    if len(periods) < least or (not remote and any(period.waited for period in periods[-least:])):
        return hold(calm)
    # The noisier, the more periods: a mean of few is low by chance, now and then.
    recent = periods[-least * factor :]
    busy = sum(period.busy_share for period in recent) / len(recent)
    throughput = sum(period.throughput for period in recent) / len(recent)
    busy_perhaps = busy * (1 + error / math.sqrt(len(recent)))
    needed = max(math.ceil(channels * busy_perhaps / options.contract_utilisation), math.ceil(channels / 2))
    if needed >= channels:
        return hold(f"{calm}; {busy:.0%} busy")
    expanded_for = memory.load_expanded_for
    if expanded_for is not None and throughput > options.load_fall_share * expanded_for:
        return hold(f"{calm}; the channels' load is still there")
    if remote and not _is_steady(periods[-least:], observation.relative_error):
        return hold(f"{calm}; whatever is downstream has not settled")
    memory.climbing = False
    memory.contracted_at = observation.period
    if remote:  # as good a trial as one upwards
        memory.trial_again = observation.period + options.ceiling_periods
    return Proposal(needed, "contract", f"{calm}; {busy:.0%} busy for {len(recent)} periods")


def _is_steady(periods: Sequence[RecentPeriod], relative_error: float) -> bool:
    throughputs = [period.throughput for period in periods]
    return max(throughputs) <= min(throughputs) * (1.05 + 4 * relative_error)
