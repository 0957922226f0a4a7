"""How long the queries are: lines of code beside those of Flink SQL, and of Spark SQL where Spark can say them.

    python -m examples.nexmark.lines                    the table of docs/nexmark.md
    python -m examples.nexmark.lines --flink CHECKOUT   the same, the queries of Flink SQL counted anew

Of a query here its function counts, with the `def` and without the docstring, and every function, class and constant of
`queries.py` that it uses, in each query that uses it. Of Flink SQL the `INSERT` counts, and a view that only it uses,
not the tables it reads and writes; of Spark SQL the query (`spark_queries.py`). Blank lines and comments do not count
on any side.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from pathlib import Path

from examples.nexmark import spark_queries

COMMIT = "6b3646c3baec701f1fa74baf938d235f742e5d3c"
"""Of github.com/nexmark/nexmark, from which the queries of Flink SQL were counted."""
FLINK = {
    "q0": 2,
    "q1": 8,
    "q2": 2,
    "q3": 7,
    "q4": 11,
    "q5": 31,
    "q6": 14,
    "q7": 11,
    "q8": 19,
    "q9": 11,
    "q10": 3,
    "q11": 8,
    "q12": 10,
    "q13": 10,
    "q14": 15,
    "q15": 17,
    "q16": 19,
    "q17": 14,
    "q18": 5,
    "q19": 4,
    "q20": 7,
    "q21": 13,
    "q22": 6,
}


def our_lines() -> dict[str, int]:
    """Query → lines of code."""
    source = Path(__file__).with_name("queries.py").read_text()
    definitions: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            definitions.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
    found = {}
    for name in definitions:
        if not (name[0] == "q" and name[1:].isdigit()):
            continue
        used: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each not in used:
                used.add(each)
                names = {node.id for node in ast.walk(definitions[each]) if isinstance(node, ast.Name)}
                waiting += names & definitions.keys()
        found[name] = sum(_lines(source, definitions[each]) for each in used)
    return dict(sorted(found.items(), key=lambda pair: int(pair[0][1:])))


def _lines(source: str, node: ast.stmt) -> int:
    """The lines of a definition that hold code."""
    counted = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(inner) is not None:
            text = inner.body[0]
            counted -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    lines = source.splitlines()
    return sum(1 for at in counted if lines[at - 1].strip() and not lines[at - 1].strip().startswith("#"))


def flink_lines(checkout: Path) -> dict[str, int]:
    """Query → lines of Flink SQL, from a checkout of the benchmark."""
    found = {}
    for name in FLINK:
        text = (checkout / f"nexmark-flink/src/main/resources/queries/{name}.sql").read_text()
        statements = text.split(";")
        wanted = [each for each in statements if "INSERT INTO" in each or "CREATE VIEW" in each]
        lines = [line.strip() for each in wanted for line in each.splitlines()]
        found[name] = sum(1 for line in lines if line and not line.startswith("--"))
    return found


def table(flink: dict[str, int]) -> str:
    """The table, with the largest and the median ratio below it."""
    rows = ["| query | here | Flink SQL | ratio | Spark SQL |", "|---|---|---|---|---|"]
    ratios = []
    spark = spark_queries.lines()
    for name, lines in our_lines().items():
        ratios.append(lines / flink[name])
        rows.append(f"| {name} | {lines} | {flink[name]} | {ratios[-1]:.2f} | {spark.get(name, '–')} |")
    return "\n".join([*rows, "", f"Median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}."])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flink", type=Path, help="a checkout of github.com/nexmark/nexmark")
    given = parser.parse_args()
    print(table(FLINK if given.flink is None else flink_lines(given.flink)))


if __name__ == "__main__":
    main()
