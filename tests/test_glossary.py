"""The glossary is true: every word is defined where it says, and forbidden names stay away.

A rule is a function, so that the end of this file can plant what it must find.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "anabranch"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

# What the page says and the code does not yet. It only shrinks.
EXCEPTIONS: set[str] = set()


def rows(page: str, columns: int) -> list[list[str]]:
    """The cells of the tables with so many columns, without heads."""
    found = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in page.splitlines() if "|" in line]
    tables = [row for row in found if len(row) == columns and not set(row[0]) <= set("-: ")]
    return [row for row in tables if row[0] not in ("word", "name")]


def names_in(source: str) -> set[str]:
    """What a module defines: classes, functions, methods, names that are assigned to."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def undefined(page: str, package: Path) -> list[str]:
    """Words whose file is not there, or does not define the name beside it."""
    found = []
    for word, _, where in rows(page, 3):
        match = re.fullmatch(r"`(\w+)` in `([\w/.]+)`", where)
        assert match is not None, f"{word}: say where as `Name` in `folder/file.py`, not {where!r}"
        name, path = match.groups()
        file = package / path
        if not file.exists() or name not in names_in(file.read_text(encoding="utf-8")):
            found.append(word)
    return found


def come_back(page: str, sources: list[str]) -> list[str]:
    """Forbidden names that a module has."""
    defined = set().union(*map(names_in, sources))
    return [name for name, _ in rows(page, 2) if name.strip("`") in defined]


def broken() -> set[str]:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    return {*undefined(GLOSSARY, PACKAGE), *come_back(GLOSSARY, sources)}


def test_every_word_is_defined_where_the_glossary_says_and_no_forbidden_name_is_there() -> None:
    new = broken() - EXCEPTIONS
    assert not new, f"docs/glossary.md and src/anabranch disagree: {sorted(new)}"


def test_an_exception_that_is_none_any_more_leaves_the_list() -> None:
    gone = EXCEPTIONS - broken()
    assert not gone, f"good: take them out of EXCEPTIONS in tests/test_glossary.py: {sorted(gone)}"


def test_words_stand_once_and_in_order() -> None:
    words = [word for word, _, _ in rows(GLOSSARY, 3)]
    assert words == sorted(set(words)) and len(words) > 30
    assert all(meaning for _, meaning, _ in rows(GLOSSARY, 3))


def test_a_word_that_is_not_where_it_should_be_is_found(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "segment.py").write_text("class Segment:\n    def rows(self): ...\n\nLIMIT = 3\n")
    page = "| word | meaning | defined in |\n|---|---|---|\n| {} | a file | `{}` in `{}` |\n"
    for name in ("Segment", "LIMIT", "rows"):
        assert undefined(page.format("segment", name, "state/segment.py"), tmp_path) == []
    assert undefined(page.format("segment", "Piece", "state/segment.py"), tmp_path) == ["segment"]
    assert undefined(page.format("segment", "Segment", "state/" + "elsewhere.py"), tmp_path) == ["segment"]
    with pytest.raises(AssertionError, match="say where"):
        undefined("| a | b | somewhere |", tmp_path)


def test_a_name_that_comes_back_is_found() -> None:
    page = "| name | because |\n|---|---|\n| `Slots` | of a cluster only |\n"
    assert come_back(page, ["class Slots: ..."]) == ["`Slots`"]
    assert come_back(page, ["Slots = tuple[int, ...]"]) == ["`Slots`"]
    assert come_back(page, ["class Slot: ..."]) == []
