"""The numbers in docs/elasticity.md are the measured ones."""

from __future__ import annotations

from pathlib import Path

from anabranch.papers.fluid.saso_report import report

DOCUMENT = Path(__file__).parents[2] / "docs" / "elasticity.md"
REMAKE = "PYTHONPATH=src python tests/papers/test_saso_report.py"
BEGIN, END = "<!-- measured: begin -->\n", "\n<!-- measured: end -->"


def with_measured_tables(document: str) -> str:
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + report() + END + after


def test_the_document_shows_what_is_measured() -> None:
    document = DOCUMENT.read_text()
    assert document == with_measured_tables(document), f"the tables are out of date; remake them with: {REMAKE}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_measured_tables(DOCUMENT.read_text()))
