"""Writes the tables of docs that follow from code: `make docs`. A test compares what is there with what would be.

A table stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end -->``; the text around is written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

from anabranch.engine.driver import epoch_progress
from anabranch.program.options import OPTIONS

DOCS = Path(__file__).parent.parent / "docs"


def progress_table(kind: type) -> list[str]:
    """The fields of a dataclass with the strings under them."""
    texts = field_texts(kind)
    rows = ((field.name, str(field.type), texts[field.name]) for field in dataclasses.fields(kind))
    return table(("key", "type", "meaning"), ((f"`{name}`", shown_type(type_), text) for name, type_, text in rows))


def field_texts(kind: type) -> dict[str, str]:
    """Field → the string under it."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    texts = {}
    for at, statement in enumerate(found.body[:-1]):
        after = found.body[at + 1]
        is_field = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(after.value.value).split())
    return texts


def shown_type(name: str) -> str:
    """A type as a reader of the dict sees it."""
    while "Mapping" in name:
        name = re.sub(r"Mapping\[str, (.*)\]", r"dict: name → \1", name)
    name = re.sub(r"Sequence\[(\w+)\]|tuple\[(\w+), \.\.\.\]", lambda found: f"list of {found[1] or found[2]}", name)
    name = name.replace(" | None", " or null")
    return re.sub(r"\w+Progress|\bChange\b", lambda found: f"[{found[0]}](#{found[0].lower()})", name)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table in Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    heads = list(heads)
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)]


TABLES: dict[str, Callable[[], list[str]]] = {
    each.__name__: (lambda kind=each: progress_table(kind))  # type: ignore[misc]
    for each in (
        epoch_progress.EpochProgress,
        epoch_progress.DurationProgress,
        epoch_progress.TaskProgress,
        epoch_progress.Change,
        epoch_progress.FileProgress,
        epoch_progress.ElasticProgress,
        epoch_progress.ExecutorProgress,
        epoch_progress.VerifyProgress,
    )
}


def options_table() -> list[str]:
    """All options of a query."""
    rows = ((f"`{each.name}`", each.kind.expected, each.default, each.doc) for each in OPTIONS)
    return table(("option", "is", "by default", "means"), rows)


TABLES["options"] = options_table


def written(text: str) -> str:
    """A page with its tables as they should be."""

    def replaced(found: re.Match[str]) -> str:
        return "\n".join([found[1], "", *TABLES[found[2]](), "", "<!-- end -->"])

    return re.sub(r"(<!-- table: (\w+) -->).*?<!-- end -->", replaced, text, flags=re.DOTALL)


def main() -> int:
    """Write all pages."""
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
