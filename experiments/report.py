"""The report: entries as JSON, the numbers behind the verdicts, and the document made from nothing but that JSON.

`docs/reproduction.md` is always ``render(docs/reproduction.json)``; a test compares the two. A run of some
experiments replaces their entries and keeps the others, and every entry says which kind of run it is from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from experiments.reproduction import Reproduction
from experiments.statements import SIMILAR, UNEXPLAINED, Verdict

PAPERS = {
    "safe": "Safe: data parallelism with sequential semantics",
    "elastic": "Elastic: the number of channels, at run time",
    "partitioning": "Partitioning: functions that balance under skew",
    "operators": "Operators: the number of workers inside an operator",
    "resources": "Resources: checkpoints that move load",
}
ORDER = tuple(PAPERS)


def label_of(name: str) -> str:
    """``elastic_figure_05`` → *Elastic*, Figure 5; with ``_spark``, what was measured there."""
    paper, kind, number, *where = name.split("_")
    return f"*{paper.capitalize()}*, {kind.capitalize()} {int(number)}{', on Spark' if where else ''}"


def entry_of(
    name: str, result: Reproduction, *, picture: str | None, quick: bool, seconds: float, commit: str = "", at: str = ""
) -> dict[str, Any]:
    """Return an entry of the JSON."""
    return {
        "name": name,
        "title": result.title,
        "how": result.how,
        "verdict": result.verdict.value,
        "statements": [
            {
                "text": statement.text,
                "paper": statement.paper,
                "measured": statement.measured,
                "verdict": statement.verdict.value,
                "reason": statement.reason,
                "ours": statement.ours,
                "rule": dict(statement.rule),
            }
            for statement in result.statements
        ],
        "picture": picture,
        "mode": "quick" if quick else "full",
        "seconds": round(seconds, 1),
        "commit": commit,
        "at": at,
    }


def collected(entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole JSON: entries in the order of the papers, and the counts over them."""
    ordered = sorted(entries, key=lambda entry: _place(entry["name"]))
    good = [entry for entry in ordered if entry["verdict"] != Verdict.DIFFERS.value]
    statements = [statement for entry in ordered for statement in entry["statements"]]

    def count(ours: bool, good_only: bool) -> int:
        return sum(
            statement["ours"] == ours and not (good_only and statement["verdict"] == Verdict.DIFFERS.value)
            for statement in statements
        )

    return {
        "figures": len(ordered),
        "met_or_better": len(good),
        "statements": count(ours=False, good_only=False),
        "statements_met_or_better": count(ours=False, good_only=True),
        "statements_of_ours": count(ours=True, good_only=False),
        "statements_of_ours_that_hold": count(ours=True, good_only=True),
        "entries": ordered,
    }


def to_json(data: dict[str, Any]) -> str:
    """The JSON as text, a statement per line: so that a change of a number is a change of a line."""
    marked = json.loads(json.dumps(data))
    statements = []
    for entry in marked["entries"]:
        for i, statement in enumerate(entry["statements"]):
            entry["statements"][i] = f"@{len(statements)}@"
            statements.append(json.dumps(statement, ensure_ascii=False))
    text = json.dumps(marked, indent=1, ensure_ascii=False)
    return re.sub(r'"@(\d+)@"', lambda found: statements[int(found[1])], text) + "\n"


def _place(name: str) -> tuple[int, str, str, bool]:
    paper, kind, number, *where = name.split("_")
    return ORDER.index(paper), kind, number, bool(where)


def render(data: dict[str, Any]) -> str:
    """Return the document."""
    entries = data["entries"]
    parts = [
        "# Reproduction of the papers' figures",
        "Every figure and table below was measured with this system's own code: the controllers and partitioning "
        "functions that also run on Spark, and the papers' own splitters, channels and mergers, in virtual time; those "
        "marked *on Spark* by the product itself, on Spark. Made by `python -m experiments` and `python -m experiments "
        "--spark`; the same as data: `reproduction.json`. All that was measured beyond the "
        "statements: `python -m experiments NAME --tables`.",
        "How to read it. Each figure lists what the paper says about it, the paper's number, ours, and a verdict that "
        "code decides from the two: *meets* (a number within the tolerance the line names, which is what means over "
        "five seeds or more are off by, and what the paper's is rounded by, and never more than half of the way to no "
        "effect at all; single runs on Spark: half of that way; what is called similar within "
        f"{SIMILAR - 1:.0%}; a bound kept; a sentence true of the measured numbers), *better*, or *differs*, with the "
        "reason. A figure differs if one of its statements does. "
        "The numbers that each verdict follows from are in the data (`rule`), and a test judges them again. What is "
        "said about our own algorithms stands below the paper's statements and is counted apart.",
        "What is set and what is found. The papers do not give the cost of a send, of a sequential part or of a busy "
        "host; where such a cost was set from a number of the paper, that number is not compared again, and the figure "
        "says so. Settings that were changed after a first look at the results (the noise of the load figures, the "
        "queues of the kernels, the costs of the work queue) are named there too. To send a tuple and to "
        "receive one costs 2 µs wherever it counts (not in *Elastic*'s Figures 13–18, where a tuple stands for 40). "
        "The papers' hosts of 8 cores are the same size within a paper, and not in both: "
        "*Safe*'s count as 11, because the paper says what hyper-threading is worth (22.6 × for 64 busy processes), "
        "*Elastic*'s as 5, because it says that 32 channels on 4 of them bring 21 × \"because the machines are fully "
        "utilized\" by source, sink and transport. *Partitioning*'s readj is read as "
        "`readj_tail`, which knows the load of keys that are not explicit, because only so it gives the paper's 1.20 "
        "for LLL; as printed it stands beside it as `readj`.",
        f"**{data['figures']} figures and tables: {data['met_or_better']} meet or better the paper, "
        f"{data['figures'] - data['met_or_better']} differ in at least one statement; "
        f"{data['statements_met_or_better']} of {data['statements']} statements of the papers are met or bettered; "
        f"{data['statements_of_ours_that_hold']} of {data['statements_of_ours']} of ours hold.**",
        _table(
            ["figure", "shows", "verdict", "statements met or better"],
            [
                [
                    f"[{label_of(entry['name'])}](#{entry['name'].replace('_', '-')})",
                    entry["title"],
                    entry["verdict"],
                    f"{sum(s['verdict'] != 'differs' for s in entry['statements'])} of {len(entry['statements'])}",
                ]
                for entry in entries
            ],
        ),
    ]
    for paper, title in PAPERS.items():
        of_paper = [entry for entry in entries if entry["name"].startswith(paper + "_")]
        if of_paper:
            parts.append(f"## {title}")
            parts += [_section(entry) for entry in of_paper]
    return "\n\n".join(parts) + "\n"


def _section(entry: dict[str, Any]) -> str:
    parts = [
        f'<a id="{entry["name"].replace("_", "-")}"></a>\n\n### {label_of(entry["name"])}: {entry["title"]}',
        f"**{entry['verdict']}** — {entry['how']} ({entry['mode']} run, {entry['seconds']:g} s{_when(entry)})",
    ]
    if entry["picture"]:
        parts.append(f"![{entry['title']}]({entry['picture']})")
    for ours, head in ((False, "the paper says"), (True, "we say of ours")):
        rows = [
            [
                statement["text"],
                statement["paper"],
                statement["measured"],
                statement["verdict"] + _because(statement["reason"]),
            ]
            for statement in entry["statements"]
            if statement["ours"] == ours
        ]
        if rows:
            parts.append(_table([head, "paper", "here", "verdict"], rows))
    return "\n\n".join(parts)


def _when(entry: dict[str, Any]) -> str:
    return f", commit {entry['commit']}, {entry['at']}" if entry["commit"] else ""


def _because(reason: str) -> str:
    if reason in ("", UNEXPLAINED):
        return f", {reason}" if reason else ""
    return f", because {reason}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
