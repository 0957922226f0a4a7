"""The glossary is true: words are defined where it says, stand where they may, and forbidden names stay away.

A rule is a function, so that the end of this file can plant what it must find.
"""

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "anabranch"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

# What the page says and the code does not yet. It only shrinks.
EXCEPTIONS: set[str] = set()


def table(page: str, head: str) -> list[list[str]]:
    """The rows of the table whose first column has this head."""
    found: list[list[str]] = []
    inside = False
    for line in page.splitlines():
        inside = line.startswith(f"| {head} |") or (inside and line.startswith("|"))
        if inside:
            found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found[2:]


# Each rule asks every file again: parsing all of them takes seconds.
@functools.cache
def names_in(source: str) -> frozenset[str]:
    """What a module defines: classes, functions, methods, names that are assigned to."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


def undefined(page: str, package: Path) -> list[str]:
    """Words whose file is not there, or does not define the name beside it."""
    found = []
    for word, _, where in table(page, "word"):
        match = re.fullmatch(r"`(\w+)` in `([\w/.]+)`", where)
        assert match is not None, f"{word}: say where as `Name` in `folder/file.py`, not {where!r}"
        name, path = match.groups()
        file = package / path
        if not file.exists() or name not in names_in(file.read_text(encoding="utf-8")):
            found.append(word)
    return found


def come_back(page: str, sources: Iterable[str]) -> list[str]:
    """Forbidden names that a module has."""
    defined = set().union(*map(names_in, sources))
    return [name for name, _ in table(page, "name") if name.strip("`") in defined]


@functools.cache
def outside_names(source: str) -> frozenset[str]:
    """Names of a module that others see: classes, functions, parameters, attributes, what it and its classes assign."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        if isinstance(node, ast.Module | ast.ClassDef):
            for each in node.body:
                targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if not name.startswith("__"))


@functools.cache
def parts_of(name: str) -> frozenset[str]:
    """The words of a name: of `SplitReport` and `split_report` split and report."""
    return frozenset(part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))


def astray(page: str, sources: dict[str, str]) -> list[str]:
    """Names with a word that may not stand in their folder; from file, below the package, to text."""
    found = []
    for words, where in table(page, "word in names"):
        kept, folders = set(words.split(", ")), re.findall(r"`([^`]+)`", where)
        for file, source in sources.items():
            if file.startswith("papers/") or any(file == each or file.startswith(f"{each}/") for each in folders):
                continue
            found += [f"{file}: {name}" for name in sorted(outside_names(source)) if parts_of(name) & kept]
    return found


def package_sources() -> dict[str, str]:
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def broken() -> set[str]:
    sources = package_sources()
    return {*undefined(GLOSSARY, PACKAGE), *come_back(GLOSSARY, sources.values()), *astray(GLOSSARY, sources)}


def test_every_word_is_defined_where_the_glossary_says_and_no_forbidden_name_is_there() -> None:
    new = broken() - EXCEPTIONS
    assert not new, f"docs/glossary.md and src/anabranch disagree: {sorted(new)}"


def test_an_exception_that_is_none_any_more_leaves_the_list() -> None:
    gone = EXCEPTIONS - broken()
    assert not gone, f"good: take them out of EXCEPTIONS in tests/test_glossary.py: {sorted(gone)}"


def test_words_stand_once_and_in_order() -> None:
    words = [word for word, _, _ in table(GLOSSARY, "word")]
    assert words == sorted(set(words)) and len(words) > 30
    assert all(meaning for _, meaning, _ in table(GLOSSARY, "word"))


def test_a_word_that_is_not_where_it_should_be_is_found(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "segment.py").write_text("class Segment:\n    def rows(self): ...\n\nLIMIT = 3\n")
    page = "| word | meaning | defined in |\n|---|---|---|\n| {} | a file | `{}` in `{}` |\n"
    for name in ("Segment", "LIMIT", "rows"):
        assert undefined(page.format("segment", name, "state/segment.py"), tmp_path) == []
    assert undefined(page.format("segment", "Piece", "state/segment.py"), tmp_path) == ["segment"]
    assert undefined(page.format("segment", "Segment", "state/" + "elsewhere.py"), tmp_path) == ["segment"]
    with pytest.raises(AssertionError, match="say where"):
        undefined("| word | meaning | defined in |\n|---|---|---|\n| a | b | somewhere |", tmp_path)


def test_a_name_that_comes_back_is_found() -> None:
    page = "| name | because |\n|---|---|\n| `Slots` | of a cluster only |\n"
    assert come_back(page, ["class Slots: ..."]) == ["`Slots`"]
    assert come_back(page, ["Slots = tuple[int, ...]"]) == ["`Slots`"]
    assert come_back(page, ["class Slot: ..."]) == []


def test_a_word_that_stands_elsewhere_is_found() -> None:
    page = "| word in names | only in |\n|---|---|\n| slot, slots | `spark`, `sim/hosts.py` |\n\n| name | because |\n"
    taken = [
        "class SlotTable: ...",
        "def free_slots(): ...",
        "def f(slot): ...",
        "SLOT = 1",
        "class A:\n    slots: int",
    ]
    for planted in [*taken, "class A:\n    def f(self):\n        self._slot = 1"]:
        assert astray(page, {"state/store.py": planted}), planted
        assert not astray(page, {"spark/slots.py": planted, "sim/hosts.py": planted, "papers/swarm": planted}), planted
    for allowed in ("class A:\n    __slots__ = ()", "def f():\n    slot = 1", "def slotted(): ..."):
        assert not astray(page, {"state/store.py": allowed}), allowed


def test_a_folder_that_has_no_use_for_a_word_is_not_listed_for_it() -> None:
    sources = package_sources()
    for words, where in table(GLOSSARY, "word in names"):
        for folder in re.findall(r"`([^`]+)`", where):
            inside = [text for file, text in sources.items() if file == folder or file.startswith(f"{folder}/")]
            used = {part for text in inside for name in outside_names(text) for part in parts_of(name)}
            assert used & set(words.split(", ")), f"{words}: no name in {folder} has it; take {folder} out"
