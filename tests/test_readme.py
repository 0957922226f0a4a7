"""The examples of the README run, and every file it points to is there."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PROGRAM, _, TESTS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def program(tmp_path) -> Path:
    """The example as a file: the library reads the source of operators."""
    path = tmp_path / "readme.py"
    path.write_text(PROGRAM)
    return path


def test_what_the_readme_says_about_testing_is_true(program):
    exec(compile(TESTS, "README.md", "exec"), runpy.run_path(str(program)))


@pytest.mark.spark
def test_the_example_of_the_readme_runs(spark, program, capsys):
    runpy.run_path(str(program), run_name="__main__")
    shown = capsys.readouterr().out
    assert "3 operators in 2 stages, 1 of them a region" in shown
    assert re.search(r"\d+ alarms, the first: Row\(sensor='sensor-0', value=0\.0\)", shown)


def test_every_link_of_the_documents_leads_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert len(documents) > 5
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} points to {target}"
