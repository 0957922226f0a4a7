"""control/ is pure: no Spark, no clock, no I/O, no global randomness; and its public names are all there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import anabranch.control

STANDARD = {"__future__", "collections", "dataclasses", "enum", "itertools", "math", "re", "statistics", "typing"}
ALLOWED = STANDARD | {"anabranch", "numpy"}
FILES = sorted(Path(anabranch.control.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_module_of_control_imports_nothing_impure(file: Path) -> None:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.split(".")[0] in ALLOWED, f"{file.name} imports {name}"
            if name.startswith("anabranch"):
                assert name.startswith("anabranch.control"), f"{file.name} imports {name}"
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not calls & {"open", "print", "input"}


def test_every_public_name_exists() -> None:
    for name in anabranch.control.__all__:
        assert hasattr(anabranch.control, name)
    assert sorted(anabranch.control.__all__, key=lambda n: (n[0].islower(), n)) == anabranch.control.__all__
