"""The controller we use: the paper's two signals and its principles, with the SASO properties for real.

    measured before the last change has shown                ─► settle    wait: it says nothing yet
    congested, and confirmed?
      ├─ not saturated, or told that the cause is downstream ─► remote    no channels added (P5)
      ├─ arrivals are below what it handles now              ─► drain     wait, the backlog shrinks
      ├─ no law promises more from more channels             ─► judge     a second period must say so as well
      │     what was measured follows no law                 ─► search    the middle of what pays and what does not
      │     and these are more than what pays                ─► return    go back, remember (P5)
      │     otherwise                                        ─► limit     stay, remember
      └─ otherwise                                           ─► expand    by the model, at most × 2
    just climbed, and hardly any room is left                ─► finish    the rest of the way
    fewer would do for `patience` periods, the load has gone ─► contract  by the model, at most ÷ 2
    otherwise                                                ─► hold

*Congested* (P1, P3): congestion above a noise floor is summed over periods (in the spirit of CUSUM). Strong
congestion above the threshold acts at once, weaker congestion once it has come twice in a row and the sum
passes the threshold. So a high threshold delays, it does not blind; and noise below the floor never adds
up.

*Model* (P6; in the spirit of DS2): the load is the measured throughput / (1 − congestion), or the arrivals
if the source tells, averaged over the latest periods that agree; capacity at other numbers of channels follows
from the *scaling laws* (scaling_law.py) that the capacities measured lately allow. Capacities of another time are of
another region, perhaps: they are never fitted together with those of now. The jump goes where the load takes
`expand_utilisation` of the channels, at most twice as many.

*Measurements* are not believed (measurement_quality.py): how noisy they are is seen, where it is not told, and how late
they are is seen from when they answer a change. A change is judged by periods that lie wholly behind it.

*Limit* (P5, before anything is forgotten): capacity, not throughput, is judged, which keeps controllers from
taking each other's effect for their own. As long as any law that may be true promises a gain, more channels are
tried, but no more than it promises them for: so the peak of a smooth curve is found from below, without having
been there. If none does, a second period must confirm it (unless all that was measured follows a law exactly);
then the region rests where it is, or goes back to what pays, below a *ceiling* that lasts `ceiling_periods`
(twice as long each time) or until the region itself has changed. Two periods that happen to agree say little about
noise: where nothing above was measured and the noise turns out to be more, the verdict is looked at again, once; with
very much noise (stragglers) there is none, as long as it does not clearly do less than with fewer. What
is tried after a hesitation is a level at most, and final: no second reversal. A ceiling that has ended is tried by a
level. In overload it never goes below what was measured lately to do more, nor below all that was measured: where no
law explains a collapse, the distance to the last number that paid is halved until they meet.

*Doubt*: tuples wait for a region that is busy, but not for all of the time. More channels are tried, and kept if the
throughput has grown; after long congestion also where it says to be hardly busy, which may be how it says so.

*Contract* (P2; giving_back.py): calm periods at the same number of channels must leave room on average, and the load
must have fallen clearly below the one that channels were last added for. So noise at a constant load can add channels
once, never take them away and add them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anabranch.control.bounds import Bounds
from anabranch.control.capacity_memory import Capacity, CapacityMemory
from anabranch.control.decision import Proposal
from anabranch.control.default_options import DefaultOptions
from anabranch.control.giving_back import REMOTE_PATIENCE_FACTOR, given_back
from anabranch.control.measurement_quality import MeasurementQuality
from anabranch.control.observation import Observation
from anabranch.control.policy_memory import PolicyMemory, RecentPeriod
from anabranch.control.scaling_law import ScalingLaw, ScalingLaws, fit

CLIMB_RATIO = 1.4  # a level of the paper's series
CAPACITY_MIN = 1e-9  # tuples per second; a divisor
TRIAL_GAIN_SHARE = 0.25  # of what linear scaling would bring: so much a trial in doubt must
CLEARLY_FULL_SHARE = 1.1  # a utilisation that needs no second look
STEP_GAIN_MIN = 0.03  # a step that brings less is not worth the migration
CEILING_PERIODS_MAX_FACTOR = 16
FRESH_PERIODS = 30  # capacities measured longer ago are not of the region as it is now
EXPLORE_PERIODS = 16  # of congestion without business, until more channels are tried all the same
BUSY_MOST_MIN = 0.2  # no saturated region is said to be less busy than this
EXACT_MISFIT = 0.005  # what was measured follows a law, exactly
LAWLESS_MISFIT = 0.02  # what was measured follows no law that we know
SEARCH_RATIO = 1.15  # two numbers this close are not told apart
ERRORS_PER_GAIN = 2.0  # standard errors that what pays must be beyond
CLOSE = 3  # so many channels apart the way from above is short
NOISIER_FACTOR = 2.0  # noise that turns out to be so many times what it was thought to be…
NOISIER_MIN = 0.02  # …and at least this puts a verdict in doubt
RECENT_MAX = 24  # periods that are remembered one by one
UNTELLABLE = 0.15  # with so much noise a few periods say nothing of whether more channels pay
SAME_LOAD_SHARE = 0.7  # two estimates of a load, the first of them rough, that may be the same load


class DefaultPolicy:
    """See the top of this file.

    Parameters
    ----------
    bounds
        Fewest and most channels.
    options
        Tuning; the defaults suit 0 to 5 % noise.
    """

    name = "default"

    def __init__(self, bounds: Bounds | None = None, options: DefaultOptions | None = None) -> None:
        self.bounds = bounds if bounds is not None else Bounds()
        self.options = options if options is not None else DefaultOptions()
        self._memory = PolicyMemory()
        self._capacities = CapacityMemory(age_max=FRESH_PERIODS)
        self._quality = MeasurementQuality()
        self._fitted: tuple[Any, ScalingLaws | None] | None = None  # fitting costs more than all the rest
        self._recent: list[RecentPeriod] = []  # the latest periods at this number of channels

    def propose(self, observation: Observation) -> Proposal:
        memory = self._memory
        memory.busy_most = max(memory.busy_most, min(1.0, observation.busy_share))
        busy_share = min(1.0, observation.busy_share / memory.busy_most)
        return self._propose(replace(observation, busy_share=busy_share))

    def _propose(self, observation: Observation) -> Proposal:
        memory = self._memory
        if memory.channels != observation.channels:  # first period, or somebody else rescaled
            self._arrive(observation.channels)
            memory.climbing = False
        self._quality.begin(observation.relative_error)
        saturated = observation.busy_share >= self.options.saturated_share and not observation.remote
        early = saturated and self._quality.early(observation.capacity)
        if self._quality.settling and not early:
            return self._hold(observation, "settle", "what is measured is still of the time before the last change")
        self._learn(observation)
        confirmed = memory.weigh_congestion(observation.congestion, self.options)
        proposal = self._answer(observation, confirmed)
        target = self.bounds.clamp(proposal.channels)
        if target != observation.channels:
            self._arrive(target)
        return Proposal(target, proposal.branch, proposal.reason)

    def rebound(self, bounds: Bounds) -> None:
        if bounds.channels_max > self.bounds.channels_max:
            # There is more to run on: what did not pay may pay now.
            self._memory.ceiling, self._memory.judged_periods, self._memory.hesitant = None, 0, False
        self.bounds = bounds

    # -- learning ------------------------------------------------------------------------------------------

    def _arrive(self, channels: int) -> None:
        """Evidence belongs to the number of channels it was seen at."""
        before = self._memory.channels
        self._quality.moved(1.0 if before is None else channels / before)
        self._memory.channels = channels
        self._memory.evidence = 0.0
        self._memory.draining = 0
        self._memory.judged_periods = 0
        self._memory.calm_periods = 0
        self._recent.clear()

    def _learn(self, observation: Observation) -> None:
        memory, options = self._memory, self.options
        memory.note_load(observation)
        waited = observation.remote or observation.congestion > options.congestion_floor
        memory.calm_periods = 0 if waited and not observation.remote else memory.calm_periods + 1
        self._recent.append(RecentPeriod(observation.busy_share, observation.throughput, waited, observation.capacity))
        del self._recent[:-RECENT_MAX]
        capacity = observation.capacity
        if capacity is not None and observation.busy_share >= options.saturated_share and not observation.remote:
            if self._quality.take(capacity):
                # What was said since the move was of the time before it, and so was what followed from it.
                self._capacities.forget(observation.channels)
                self._forget_ceiling(observation.channels)
                memory.judged_periods = 0
            if self._capacities.record(observation.channels, capacity, observation.period):
                self._forget_ceiling(observation.channels)
                memory.ceiling_periods = 0
        if memory.ceiling is not None and observation.period > memory.ceiling_until:
            self._forget_ceiling(observation.channels)
            memory.careful, memory.ceiling_looked_at = True, False

    def _forget_ceiling(self, channels: int) -> None:
        """Try more again: what was measured above is as old as the ceiling."""
        self._memory.ceiling = None
        self._capacities.forget_above(channels)

    # -- deciding ------------------------------------------------------------------------------------------

    def _answer(self, observation: Observation, confirmed: bool) -> Proposal:
        if observation.remote:
            return self._contract(observation, "the congestion is downstream", branch="remote")
        if not confirmed:
            finish = self._finish_climb(observation)
            if finish is not None:
                return finish
            if observation.congestion > self.options.congestion_floor:
                return self._hold(observation, "hold", "congestion is not confirmed")
            self._memory.draining = self._memory.trial_again = self._memory.waiting_periods = 0
            self._memory.stop_search()
            return self._contract(observation, "not congested")
        if observation.busy_share < self.options.saturated_share:
            return self._doubt(observation)
        self._memory.waiting_periods = 0
        if self._memory.drains(observation, self.options):
            return self._hold(observation, "drain", "the backlog shrinks by itself")
        judged = self._judge_climb(observation)
        return judged if judged is not None else self._expand(observation)

    def _hold(self, observation: Observation, branch: str, reason: str) -> Proposal:
        return Proposal(observation.channels, branch, f"{reason} (congestion {observation.congestion:.2f})")

    def _doubt(self, observation: Observation) -> Proposal:
        """Tuples wait although the region has time left: whose fault is it?

        Somebody's downstream, or its own: channels that block one another, short queues, tuples that vary in cost
        keep a region from being busy all the time. If it is nearly so for a few periods in a row, more channels
        are tried, and kept if the throughput has grown (P5 as in the paper, by experiment).
        """
        memory, options = self._memory, self.options
        channels, recent = observation.channels, self._recent[-REMOTE_PATIENCE_FACTOR * options.patience :]
        cause = f"tuples wait although the region is busy for only {observation.busy_share:.0%}"
        if memory.trial_channels is not None and memory.trial_channels < channels:
            if len(recent) < options.gain_periods:
                return self._hold(observation, "judge", f"{cause}; trying {channels} channels")
            throughput = sum(period.throughput for period in recent) / len(recent)
            wanted = 1.0 + TRIAL_GAIN_SHARE * (channels / memory.trial_channels - 1.0)
            if throughput < wanted * memory.trial_throughput:
                target, memory.trial_channels = memory.trial_channels, None
                memory.put_off_trial(observation.period, options.ceiling_periods)
                return Proposal(target, "return", f"{cause}; {channels} channels have not changed it")
            memory.trial_channels, memory.trial_periods = None, 0
            # So busy it was when it had more to do than it could: that is what saturated looks like here.
            memory.busy_most *= max(observation.busy_share, BUSY_MOST_MIN)
            return self._expand(observation)
        memory.waiting_periods += 1
        latest = recent[-options.patience :]
        busy = sum(period.busy_share for period in latest) / len(latest)
        throughput = sum(period.throughput for period in latest) / len(latest)
        if (
            len(latest) < options.patience
            or not all(period.waited for period in latest)
            or (busy < options.doubtful_share and memory.waiting_periods <= EXPLORE_PERIODS)
            or observation.period < memory.trial_again
        ):
            return self._contract(observation, cause, branch="remote")
        memory.trial_channels, memory.trial_throughput = channels, throughput
        return self._expand(observation)

    def _judge_climb(self, observation: Observation) -> Proposal | None:
        """P5: None if more channels are worth trying."""
        memory, options = self._memory, self.options
        channels = observation.channels
        if memory.ceiling is not None:
            self._look_again(observation)
        if memory.ceiling is not None or self._capacities.get(channels) is None:
            return None
        if memory.low is not None or memory.back is not None:
            return self._search(observation)
        laws = self._laws(observation)
        if laws is None:
            return None
        if self._quality.error >= UNTELLABLE and not self._does_less_than_fewer(observation):
            return None  # neither a law nor two periods say anything then: it goes on while tuples wait
        hesitant, memory.hesitant = memory.hesitant, False
        candidates: Sequence[ScalingLaw | ScalingLaws] = [laws] if hesitant else laws.laws
        for law in candidates:
            most = self._limit(law)
            if most > channels and law.capacity(most) >= (1 + STEP_GAIN_MIN) * law.capacity(channels):
                memory.hesitant = memory.judged_periods > 0
                return None
        memory.judged_periods += 1
        error = self._quality.error
        # Where all that was measured follows a law, there is no noise to wait for.
        exact = error == 0 and laws.misfit <= EXACT_MISFIT
        sure = (exact or hesitant or memory.judged_periods >= options.gain_periods) and not self._quality.unanswered
        limit = self._limit(laws)
        gain = laws.capacity(limit) / laws.capacity(channels) - 1.0
        if not sure:
            return self._hold(observation, "judge", f"{limit} channels seem to be enough; once more")
        faster = limit < channels and gain >= STEP_GAIN_MIN
        low = self._best_below(
            observation, 0.0 if laws.misfit > LAWLESS_MISFIT + 3 * error else STEP_GAIN_MIN + 2 * error
        )
        if low is not None and (laws.misfit > LAWLESS_MISFIT + 3 * error or not faster):
            memory.low, memory.high, memory.back, memory.from_rest = low, channels, None, False
            return self._middle(observation)
        if not faster:
            # Fewer channels would only be thriftier, and that must be beyond doubt.
            limit = max(self._limit(law) for law in laws.laws)
            gain = laws.capacity(limit) / laws.capacity(channels) - 1.0
        # In overload never below all that was measured: a law through two points may say anything of a third.
        limit = max(limit, min(known.channels for known in self._capacities.fresh(observation.period)))
        if limit < channels and (faster or channels >= CLIMB_RATIO * limit):
            self._put_ceiling(limit + 1, observation)
            return Proposal(limit, "return", f"{channels} channels are beyond what pays: {gain:+.0%} with {limit}")
        self._put_ceiling(channels + 1, observation)
        return self._hold(observation, "limit", f"more than {channels} channels would bring {max(0.0, gain):+.0%}")

    def _look_again(self, observation: Observation) -> None:
        """Withdraw a ceiling, once, that would not be put with the noise that is known by now."""
        memory, channels = self._memory, observation.channels
        measured = self._capacities.fresh(observation.period)
        error = self._quality.error
        if memory.ceiling_looked_at or error < max(NOISIER_FACTOR * memory.ceiling_error, NOISIER_MIN):
            return
        if len(measured) < 2 or any(known.channels > channels for known in measured):
            return
        laws = self._laws(observation)
        assert laws is not None
        if any(
            (most := self._limit(law)) > channels and law.capacity(most) >= (1 + STEP_GAIN_MIN) * law.capacity(channels)
            for law in laws.laws
        ):
            memory.ceiling, memory.ceiling_periods, memory.ceiling_looked_at = None, 0, True

    def _does_less_than_fewer(self, observation: Observation) -> bool:
        """Whether the present number was measured to do less than a smaller one lately, beyond noise."""
        here = self._capacities.get(observation.channels)
        if here is None:
            return False
        for known in self._capacities.fresh(observation.period):
            chance = self._quality.error * (1 / here.samples + 1 / known.samples) ** 0.5
            if known.channels < here.channels and here.throughput < (1 - ERRORS_PER_GAIN * chance) * known.throughput:
                return True
        return False

    def _best_below(self, observation: Observation, beyond: float) -> int | None:
        """The number below the present one that was measured lately to do more, by so much; None if none was."""
        here = self._capacities.get(observation.channels)
        fewer = [known for known in self._capacities.fresh(observation.period) if known.channels < observation.channels]
        best = max(fewer, key=lambda known: known.throughput, default=None)
        if best is None or here is None or best.throughput <= here.throughput * (1 + beyond):
            return None
        return best.channels

    def _search(self, observation: Observation) -> Proposal | None:
        """Between a number that pays and one that does not, where no law helps: halve the distance."""
        memory, channels = self._memory, observation.channels
        other = memory.low if memory.back is None else memory.back
        here, known = self._capacities.get(channels), self._capacities.get(other or 0)
        if here is None or known is None or known.channels == channels:
            memory.stop_search()
            return None
        memory.judged_periods += 1
        error = self._quality.error
        if error > 0 and memory.judged_periods < self.options.gain_periods:
            return self._hold(observation, "judge", f"is {channels} better than {known.channels}? Once more")
        pays = self._pays(here, known)
        if memory.back is not None:
            peak, memory.back = memory.back, None
            memory.low, memory.high = (channels, peak) if pays else (peak, peak)
        elif not pays:
            memory.high = channels
        else:
            memory.low = channels
            if memory.high is None:  # no ceiling any more
                memory.stop_search()
                return None
            if memory.from_rest:  # from above: what pays is the end of it, and nobody has to go up again
                memory.high = channels
        return self._middle(observation)

    def _pays(self, here: Capacity, known: Capacity) -> bool:
        """Whether a number does more than another, by a step's worth and beyond noise."""
        chance = self._quality.error * (1 / here.samples + 1 / known.samples) ** 0.5
        return here.throughput >= (1 + max(STEP_GAIN_MIN, ERRORS_PER_GAIN * chance)) * known.throughput

    def _middle(self, observation: Observation) -> Proposal:
        memory = self._memory
        assert memory.low is not None and memory.high is not None
        low, high = memory.low, memory.high
        if high - low > 1 and high > SEARCH_RATIO * low:
            # From above where a ceiling is tried again: one that pays is the end of it, and nobody has to go up again.
            is_close = high - low <= CLOSE and memory.ceiling_periods > 0
            middle = high - 1 if is_close else (low + high) // 2
            return Proposal(middle, "search", f"{low} channels pay and {high} do not: what lies between")
        below = self._between(low, observation)
        if below is not None:
            memory.low, memory.high, memory.back = None, None, low
            return Proposal(below, "search", f"{low} channels are a peak, perhaps that of {below}")
        memory.stop_search()
        self._put_ceiling(low + 1, observation)
        branch = "return" if low < observation.channels else "limit"
        return Proposal(low, branch, f"more than {low} channels do not pay")

    def _between(self, peak: int, observation: Observation) -> int | None:
        """What was passed by on the way up to a peak, if it may do more: no law is better than linear."""
        here = self._capacities.get(peak)
        fewer = [known for known in self._capacities.fresh(observation.period) if known.channels < peak]
        below = max(fewer, key=lambda known: known.channels, default=None)
        if here is None or below is None or peak - below.channels < 2 or peak <= SEARCH_RATIO * below.channels:
            return None
        most = below.throughput * (peak - 1) / below.channels
        if most < here.throughput * (1 + STEP_GAIN_MIN + ERRORS_PER_GAIN * self._quality.error):
            return None
        return (below.channels + peak) // 2

    def _laws(self, observation: Observation) -> ScalingLaws | None:
        known = tuple(self._capacities.fresh(observation.period)), self._quality.error
        if self._fitted is None or self._fitted[0] != known:
            self._fitted = known, fit(*known)
        return self._fitted[1]

    def _limit(self, law: ScalingLaw | ScalingLaws) -> int:
        return self.bounds.clamp(law.worthwhile(self.bounds.channels_max, self.options.gain_min))

    def _put_ceiling(self, channels: int, observation: Observation) -> None:
        memory, options = self._memory, self.options
        if memory.ceiling is None:
            longest = CEILING_PERIODS_MAX_FACTOR * options.ceiling_periods
            memory.ceiling_periods = min(longest, max(options.ceiling_periods, 2 * memory.ceiling_periods))
        memory.ceiling = channels
        memory.ceiling_until = observation.period + memory.ceiling_periods
        memory.ceiling_error = self._quality.error

    def _expand(self, observation: Observation) -> Proposal:
        memory = self._memory
        channels = observation.channels
        allowed = self.bounds.channels_max
        if memory.ceiling is not None:
            allowed = min(allowed, memory.ceiling - 1)
        if allowed <= channels:
            limit = "more did not pay" if memory.ceiling is not None else "maxChannels is reached"
            return self._hold(observation, "limit", f"congested, but {limit}")
        wanted = max(channels + 1, self._channels_for_load(observation))
        target = min(wanted, allowed)
        if memory.careful:
            memory.careful = False
            memory.low, memory.high, memory.back, memory.from_rest = channels, None, None, True
        memory.note_unsteadiness(observation.period, self.options.patience)
        memory.climbing = True
        memory.climbing_periods = 0
        memory.load_expanded_for = memory.load
        reason = f"congested ({observation.congestion:.2f}); the load takes about {wanted} channels"
        return Proposal(target, "expand", reason)

    def _finish_climb(self, observation: Observation) -> Proposal | None:
        """Go the rest of the way once congestion is gone, or nearly so.

        A climb that ends with the region nearly saturated is not over: some later noise would bring the congestion
        back. Rather now; and what is known of load and capacity is a mean, so it takes a few periods to be sure.
        """
        memory, options = self._memory, self.options
        if not memory.climbing:
            return None
        memory.climbing_periods += 1
        memory.climbing = memory.climbing_periods < options.finish_periods
        load, expanded_for = memory.load, memory.load_expanded_for
        if expanded_for is not None and load >= SAME_LOAD_SHARE * expanded_for:
            memory.load_expanded_for = load  # estimated under heavy congestion before, now measured
        utilisation = load / self._capacity(observation)
        if memory.climbing and observation.relative_error > 0 and utilisation < CLEARLY_FULL_SHARE:
            return None  # a single period is too noisy to go by
        if utilisation <= options.finish_utilisation or memory.ceiling is not None:
            return None
        memory.climbing = utilisation >= CLEARLY_FULL_SHARE
        # Where channels bring little, room is dear: a level at most.
        target = min(self._channels_for_load(observation), round(CLIMB_RATIO * observation.channels))
        return Proposal(target, "finish", f"the climb would end at a utilisation of {utilisation:.0%}")

    def _channels_for_load(self, observation: Observation) -> int:
        """The fewest channels, up to twice as many, at which the load takes `expand_utilisation` of the region."""
        channels = observation.channels
        fitted = self._laws(observation)
        laws = fitted.laws if fitted is not None else []
        here = self._capacity(observation)
        most = round(CLIMB_RATIO * channels) if self._memory.hesitant or self._memory.careful else 2 * channels
        limit = max((self._limit(law) for law in laws), default=0)
        if limit > channels:
            most = min(most, limit)
        wanted = self._memory.load / self.options.expand_utilisation
        for target in range(channels, most):
            # In doubt the law that asks for the fewest: a step that was too short is gone on with, not undone.
            ratio = max((law.capacity(target) / law.capacity(channels) for law in laws), default=target / channels)
            if here * ratio >= wanted:
                return target
        return most

    def _capacity(self, observation: Observation) -> float:
        """What the present channels can do: the mean of what was seen here, and of what the most hopeful law says."""
        recent = self._recent[-REMOTE_PATIENCE_FACTOR * self.options.patience :]
        seen = [period.capacity for period in recent if period.capacity is not None]
        laws = self._laws(observation)
        if laws is not None:
            seen.append(max(law.capacity(observation.channels) for law in laws.laws))
        return max(sum(seen) / len(seen) if seen else observation.throughput, CAPACITY_MIN)

    def _contract(self, observation: Observation, calm: str, branch: str = "hold") -> Proposal:
        error = self._quality.told or self._quality.error
        return given_back(self._memory, self.options, self._recent, observation, error, calm, branch)

    # -- a restarted driver continues ----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        recent = [list(period) for period in self._recent]
        return {
            **self._memory.to_dict(),
            "recent": recent,
            "quality": self._quality.to_dict(),
            **self._capacities.to_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = PolicyMemory.of_dict(state)
        self._recent = [RecentPeriod(*period) for period in state["recent"]]
        self._capacities.restore(state)
        self._quality = MeasurementQuality(**state["quality"])
        self._fitted = None
