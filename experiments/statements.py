"""A paper's statement, what we measured, and the verdict that follows from the two.

    close     a number of the paper        meets within what means over so many seeds are off by, and never more than
                                           half of the effect; better beyond it on the good side
    near      the same, of a single run    meets within half of the effect
    similar   two things that are alike    meets within a quarter
    at_most,
    at_least  a bound of the paper         meets inside it
    compares  a sentence about numbers     meets if all its comparisons are true
    holds     any other sentence           meets if the measured numbers make it true

Each keeps its *rule*, the numbers that the verdict follows from; `judged` is the only place that decides, and a test
asks it again for every row of the report. A statement is the paper's, judged on the paper's algorithms, or *ours*,
about what we do beside it: they are counted apart.

Every statement may carry a reason. It is printed only if the numbers do not bear the statement out. A difference
whose cause was not found says just that: better than a reason that sounds well.

What the settings of an experiment make true is no statement. If a cost was set from a number of the paper, that
number is not compared again.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any

SIMILAR = 1.25
"""Ratio of two things that the papers call similar, or about the same; they print no number for it."""
PAPER_SEEDS = 5
"""Runs behind a number of the papers, where it is a mean; *Elastic* has 3."""
DEVIATIONS = 2.0
"""Standard errors of a difference of two means that are chance."""

UNEXPLAINED = "not explained"


class Verdict(enum.Enum):
    """How a reproduction stands to the paper."""

    MEETS = "meets"
    BETTER = "better"
    DIFFERS = "differs"


Rule = Mapping[str, Any]
_COMPARISONS = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge}


@dataclass(frozen=True)
class Statement:
    """One thing the paper says about a figure, or that we say beside it."""

    text: str
    """What the paper says, in few words."""
    paper: str
    measured: str
    verdict: Verdict
    reason: str = ""
    """Why it differs; empty otherwise."""
    ours: bool = False
    """Whether it is about our own algorithm, not the paper's."""
    rule: Rule = field(default_factory=dict)
    """What the verdict follows from."""


def judged(rule: Rule) -> Verdict:
    """The verdict that follows from a rule."""
    kind = rule["kind"]
    if kind == "near":
        paper, measured = rule["paper"], rule["measured"]
        if abs(measured - paper) <= rule["within"] * abs(paper):
            return Verdict.MEETS
        good = {"lower": measured < paper, "higher": measured > paper}.get(rule["better"], False)
        return Verdict.BETTER if good else Verdict.DIFFERS
    if kind == "compares":
        true = all(_COMPARISONS[how](left, right) for left, how, right in rule["claims"])
    else:
        true = rule["true"]
    return (Verdict.BETTER if rule.get("surpasses") else Verdict.MEETS) if true else Verdict.DIFFERS


def near(
    text: str,
    paper: float,
    measured: float,
    *,
    neutral: float = 1.0,
    better: str | None = None,
    because: str = UNEXPLAINED,
    ours: bool = False,
) -> Statement:
    """Compare a single run with a number; `better` is "lower" or "higher" if one side of it is an improvement.

    What is on the other side of the middle between the paper's number and `neutral`, which would be no effect at all,
    is not the paper's finding.
    """
    within = abs(paper - neutral) / 2 / abs(paper)
    return _number_near(text, paper, measured, within, better, because, ours)


def close(
    text: str,
    paper: float,
    seeds: Sequence[float],
    *,
    middle: bool = False,
    rounding: float | None = None,
    neutral: float | None = None,
    better: str | None = None,
    because: str = UNEXPLAINED,
    ours: bool = False,
) -> Statement:
    """Compare a mean over seeds (`middle`: a median) with the paper's, within what such means are off by.

    The paper's mean is taken to spread as ours does, and to be off by `rounding` (without one, half of its last digit:
    5 of 50, half a one of 93). If there is a `neutral` number, which would be no effect at all, it is never more than
    half of the way there, however much seeds differ.
    """
    measured = median(seeds) if middle else fmean(seeds)
    error = DEVIATIONS * (stdev(seeds) if len(seeds) > 1 else 0.0) * (1 / len(seeds) + 1 / PAPER_SEEDS) ** 0.5
    within = error * (1.25 if middle else 1.0) + (_half_a_digit(paper) if rounding is None else rounding)
    if neutral is not None:
        within = min(within, abs(paper - neutral) / 2)
    return _number_near(text, paper, measured, within / abs(paper), better, because, ours)


def similar(text: str, ratio: float, *, because: str = UNEXPLAINED, ours: bool = False) -> Statement:
    """Compare two things that are said to be alike, by their ratio."""
    rule = {"kind": "compares", "claims": [[ratio, "≥", 1 / SIMILAR], [ratio, "≤", SIMILAR]]}
    return _decided(f"{text} (within {SIMILAR - 1:.0%})", "1", _number(ratio), rule, because, ours)


def between(text: str, low: float, high: float, seeds: Sequence[float], *, because: str = UNEXPLAINED) -> Statement:
    """Compare a mean over seeds with a range of the paper, whose ends are rounded."""
    measured = fmean(seeds)
    claims = [[measured, "≥", low - _half_a_digit(low)], [measured, "≤", high + _half_a_digit(high)]]
    return _decided(
        text, f"{low:g}–{high:g}", _number(measured), {"kind": "compares", "claims": claims}, because, False
    )


def _half_a_digit(paper: float) -> float:
    """Half of the last digit that the paper prints: a number of thousands is not exact to one."""
    text = f"{paper:.12f}".rstrip("0").rstrip(".")
    whole, _, decimals = text.partition(".")
    zeros = 0 if decimals else len(whole) - len(whole.rstrip("0"))
    return 0.5 * 10.0 ** (zeros - len(decimals))


def _number_near(
    text: str, paper: float, measured: float, within: float, better: str | None, because: str, ours: bool
) -> Statement:
    rule = {"kind": "near", "paper": paper, "measured": measured, "within": round(within, 4), "better": better}
    shown = f"{within:.0%}" if within >= 0.01 else f"{within:.1%}"
    return _decided(f"{text} (± {shown})", f"{paper:g}", _number(measured), rule, because, ours)


def at_most(text: str, paper: float, measured: float, *, because: str = UNEXPLAINED, ours: bool = False) -> Statement:
    """Compare with an upper bound."""
    rule = {"kind": "compares", "claims": [[measured, "≤", paper]]}
    return _decided(text, f"≤ {paper:g}", _number(measured), rule, because, ours)


def at_least(text: str, paper: float, measured: float, *, because: str = UNEXPLAINED, ours: bool = False) -> Statement:
    """Compare with a lower bound."""
    rule = {"kind": "compares", "claims": [[measured, "≥", paper]]}
    return _decided(text, f"≥ {paper:g}", _number(measured), rule, because, ours)


def compares(
    text: str,
    claims: Sequence[tuple[float, str, float]],
    measured: str,
    *,
    paper: str = "yes",
    because: str = UNEXPLAINED,
    ours: bool = False,
) -> Statement:
    """State whether all comparisons (left, "<" "≤" ">" "≥", right) are true."""
    rule = {"kind": "compares", "claims": [list(claim) for claim in claims]}
    return _decided(text, paper, measured, rule, because, ours)


def holds(
    text: str,
    condition: bool,
    measured: str,
    *,
    paper: str = "yes",
    because: str = UNEXPLAINED,
    ours: bool = False,
) -> Statement:
    """State whether measured numbers make a sentence true."""
    return _decided(text, paper, measured, {"kind": "sentence", "true": bool(condition)}, because, ours)


def surpasses(text: str, condition: bool, measured: str, *, paper: str, because: str = UNEXPLAINED) -> Statement:
    """State something that the paper could not do, or did worse, and that our own part is meant to do."""
    rule = {"kind": "sentence", "true": bool(condition), "surpasses": True}
    return _decided(text, paper, measured, rule, because, True)


def overall(statements: Sequence[Statement]) -> Verdict:
    """One difference makes a figure differ; without any, one improvement makes it better."""
    if not statements:
        raise ValueError("a figure without statements has no verdict")
    verdicts = {statement.verdict for statement in statements}
    for verdict in (Verdict.DIFFERS, Verdict.BETTER):
        if verdict in verdicts:
            return verdict
    return Verdict.MEETS


def _decided(text: str, paper: str, measured: str, rule: Rule, because: str, ours: bool) -> Statement:
    verdict = judged(rule)
    return Statement(text, paper, measured, verdict, because if verdict is Verdict.DIFFERS else "", ours, rule)


def _number(value: float) -> str:
    if value and not 0.01 <= abs(value) < 10_000:
        return f"{value:.3g}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.1f}"
