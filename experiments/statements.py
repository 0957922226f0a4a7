"""A paper's statement, what we measured, and the verdict that follows from the two.

    near      a number of the paper        meets within a tolerance of it, better beyond it on the good side
    at_most,
    at_least  a bound of the paper         meets inside it
    holds     a sentence of the paper      meets if the measured numbers make it true

Every statement may carry a reason. It is printed only if the numbers do not bear the statement out. A difference
whose cause was not found says just that: better than a reason that sounds well.

What the settings of an experiment make true is no statement. If a cost was set from a number of the paper, that
number is not compared again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE_DEFAULT = 0.15
"""Relative. The papers' numbers are means of 3 to 5 runs on other machines, most of them read off a drawing."""

UNEXPLAINED = "not explained"


class Verdict(enum.Enum):
    """How a reproduction stands to the paper."""

    MEETS = "meets"
    BETTER = "better"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Statement:
    """One thing the paper says about a figure."""

    text: str
    """What the paper says, in few words."""
    paper: str
    measured: str
    verdict: Verdict
    reason: str = ""
    """Why it differs; empty otherwise."""


def near(
    text: str,
    paper: float,
    measured: float,
    *,
    within: float = TOLERANCE_DEFAULT,
    better: str | None = None,
    because: str = UNEXPLAINED,
) -> Statement:
    """Compare with a number; `better` is "lower" or "higher" if one side of it is an improvement."""
    if abs(measured - paper) <= within * abs(paper):
        verdict = Verdict.MEETS
    elif (better == "lower" and measured < paper) or (better == "higher" and measured > paper):
        verdict = Verdict.BETTER
    else:
        verdict = Verdict.DIFFERS
    return _decided(text, f"{paper:g}", _number(measured), verdict, because)


def at_most(text: str, paper: float, measured: float, *, because: str = UNEXPLAINED) -> Statement:
    """Compare with an upper bound."""
    verdict = Verdict.MEETS if measured <= paper else Verdict.DIFFERS
    return _decided(text, f"≤ {paper:g}", _number(measured), verdict, because)


def at_least(text: str, paper: float, measured: float, *, because: str = UNEXPLAINED) -> Statement:
    """Compare with a lower bound."""
    verdict = Verdict.MEETS if measured >= paper else Verdict.DIFFERS
    return _decided(text, f"≥ {paper:g}", _number(measured), verdict, because)


def holds(text: str, condition: bool, measured: str, *, paper: str = "yes", because: str = UNEXPLAINED) -> Statement:
    """State whether measured numbers make a sentence true."""
    return _decided(text, paper, measured, Verdict.MEETS if condition else Verdict.DIFFERS, because)


def surpasses(text: str, condition: bool, measured: str, *, paper: str, because: str = UNEXPLAINED) -> Statement:
    """State something that the paper could not do, or did worse, and that our own part is meant to do."""
    return _decided(text, paper, measured, Verdict.BETTER if condition else Verdict.DIFFERS, because)


def overall(statements: Sequence[Statement]) -> Verdict:
    """One difference makes a figure differ; without any, one improvement makes it better."""
    if not statements:
        raise ValueError("a figure without statements has no verdict")
    verdicts = {statement.verdict for statement in statements}
    for verdict in (Verdict.DIFFERS, Verdict.BETTER):
        if verdict in verdicts:
            return verdict
    return Verdict.MEETS


def _decided(text: str, paper: str, measured: str, verdict: Verdict, because: str) -> Statement:
    return Statement(text, paper, measured, verdict, because if verdict is Verdict.DIFFERS else "")


def _number(value: float) -> str:
    if value and not 0.01 <= abs(value) < 10_000:
        return f"{value:.3g}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.1f}"
