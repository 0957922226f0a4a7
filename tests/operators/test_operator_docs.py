"""The examples of docs/operators.md and docs/time.md run, and the table of counts names every count there is."""

import ast
import datetime
import re
from pathlib import Path

import anabranch as ab
from anabranch.operators import library_operator as library

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "operators.md").read_text()

STREAMS = {
    "usage": ([("a", 1, 2), ("a", 59, 3), ("a", 70, 1)], "app string, time long, flow long"),
    "trades": ([("s", 1.0), ("s", 2.0)], "symbol string, price double"),
    "orders": ([(1, 10, 5), (2, 10, 5), (4, 10, 5), (3, 9999, 5)], "id long, time long, amount long"),
    "payments": ([(1, 20, 4), (2, 9999, 4)], "order long, time long, amount long"),
    "stream": ([(1, 2.0)], "id long, net double"),
    "log": ([("error",), ("note",)], "level string"),
    "logins": ([("h", "u", at, at == 20) for at in range(21)], "host string, user string, time long, ok boolean"),
}
EXPECTED = {
    "per_minute": [("a", 5, 0)],
    "moving": [("s", 1.0), ("s", 1.5)],
    "alerts": [("a", 30, 1)],
    "doubtful": [("a", 5)],
    "stock_changes": [("a", 1, "insert"), ("b", 5, "insert"), ("a", 2, "update"), ("a", 2, "delete")],
    "kept": [(1, -3), (2, -5), (4, 5)],
    "most": [("a", 2), ("a", 3)],
    "pairs": [(1, 5, 4), (2, 5, None), (4, 5, None)],
    "errors": [("error",)],
    "rest": [("note",)],
    "break_ins": [("h", "u", 20)],
}


def test_the_examples_give_what_the_text_says():
    names = {name: ab.from_rows(rows, schema, name=name) for name, (rows, schema) in STREAMS.items()}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        if "session.read(" in block or "repartitionById" in block:
            continue  # needs Spark: tests/spark/test_partitioned_source.py
        exec(compile(block, "docs/operators.md", "exec"), names)
    assert {name: names[name].run_sequential() for name in EXPECTED} == EXPECTED
    assert [(letter.operator, letter.error[:17]) for letter in names["letters"].run_sequential()] == [
        ("rates", "ZeroDivisionError")
    ]


def test_the_examples_on_time_run():
    """With rows where they read files."""
    start = datetime.datetime(2024, 3, 10, 4, tzinfo=datetime.UTC)  # the day clocks go forward in New York
    hours = [("s", start + datetime.timedelta(hours=n)) for n in range(30)]
    orders = [("a", "ordered", start), ("b", "ordered", start), ("b", "paid", start + datetime.timedelta(minutes=5))]
    rows = [("s", n, float(n)) for n in range(90)]

    class Session:
        def from_files(self, path, form, schema):
            return ab.from_rows(rows, schema)

    names = {"ab": ab, "datetime": datetime, "session": Session()}
    names["orders"] = ab.from_rows(orders, "order string, kind string, at timestamp")
    text = (DOCS / "time.md").read_text()
    found = []
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        if "local_time" in block:
            names["readings"] = ab.from_rows(hours, "sensor string, at timestamp")
        *statements, last = ast.parse(block).body
        exec(compile(ast.Module(statements, []), "docs/time.md", "exec"), names)
        if isinstance(last, ast.Expr):
            found.append(eval(compile(ast.Expression(last.value), "docs/time.md", "eval"), names))
        else:
            exec(compile(ast.Module([last], []), "docs/time.md", "exec"), names)
    unpaid, days = found
    assert names["counts"].run_sequential() == [("s", 60)]
    assert [tuple(t) for t in names["moving"].run_sequential()][:2] == [("s", 4.5), ("s", 9.5)]
    assert {t.why for t in names["updates"].run_sequential()} == {"early", "close"}
    assert unpaid.run_sequential(ends=True) == [("a", start + datetime.timedelta(hours=1))]
    assert [t.n for t in days.run_sequential(ends=True)] == [1, 23, 6]


def test_every_method_and_every_count_is_described():
    for name in ("aggregate", "sort", "deduplicate", "match", "join", "enrich", "combine", "union", "route", "split"):
        assert f"`{name}" in TEXT and hasattr(ab.Stream, name)
    for name in ("NULL_KEY", "NULL_ATTRIBUTE", "BACKWARDS", "LATE", "PARTLY_LATE"):
        assert f"| `{getattr(library, name)}` |" in TEXT
