"""The tables of the docs that follow from code say what the code says."""

import importlib.util
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.testing import ParallelRun

ROOT = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
write_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(write_docs)


@pytest.mark.parametrize("page", sorted(path.name for path in write_docs.DOCS.glob("*.md")))
def test_a_page_is_as_make_docs_would_write_it(page):
    text = (write_docs.DOCS / page).read_text(encoding="utf-8")
    assert write_docs.written(text) == text, f"docs/{page} is out of date: run make docs"


def test_what_a_query_tells_has_exactly_the_keys_that_are_documented(tmp_path):
    stream = ab.from_rows([("a", 1), ("b", 2)], "k string, x long")
    run = ParallelRun(stream.aggregate(by="k", window=ab.tumbling(1), total=ab.agg.sum("x")), str(tmp_path))
    run.run_epochs()
    shown = run.progress[0].to_dict()
    page = (write_docs.DOCS / "progress.md").read_text(encoding="utf-8")

    def documented(name):
        table = page.split(f"<!-- table: {name} -->")[1].split("<!-- end -->")[0]
        return [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]

    assert list(shown) == documented("EpochProgress")
    assert list(shown["duration_ms"]) == documented("DurationProgress")
    assert {task["kind"] for task in shown["stages"]} == {"source", "channel"}
    assert all(list(task) == documented("TaskProgress") for task in shown["stages"])


def test_a_table_that_says_something_else_is_noticed():
    page = (write_docs.DOCS / "progress.md").read_text(encoding="utf-8")
    assert write_docs.written(page.replace("`rows_in`", "`rows_inwards`")) == page
