"""The command ``python -m benchmarks``, on benchmarks that the tests plant."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks

QUICK = """
def main(arguments):
    print("measuring with", arguments)
    return {"ratio": 2.5, "quick": "--quick" in arguments}
"""


class Folder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "benchmarks"
        self.package.mkdir()
        for name in ("__init__.py", "__main__.py", "_machine.py", "_spark.py"):
            shutil.copy(Path(benchmarks.__file__).parent / name, self.package / name)

    def plant(self, name: str, source: str) -> None:
        (self.package / f"{name}.py").write_text(source)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks", *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def figure(done: subprocess.CompletedProcess[str]) -> dict:
    last = done.stdout.splitlines()[-1]
    assert last.startswith("figure: "), done.stdout + done.stderr
    return json.loads(last.removeprefix("figure: "))


def test_a_benchmark_gets_its_arguments_and_its_figures_come_last(folder: Folder) -> None:
    folder.plant("fast", QUICK)
    done = folder.run("fast", "--quick", "--rows", "7")
    assert done.returncode == 0
    assert "measuring with ['--quick', '--rows', '7']" in done.stdout
    assert figure(done) == {"ratio": 2.5, "quick": True}


def test_all_runs_every_benchmark_but_no_helper(folder: Folder) -> None:
    folder.plant("fast", QUICK)
    folder.plant("slow", QUICK)
    folder.plant("_data", "raise SystemExit('not a benchmark')")
    done = folder.run("all", "--quick")
    assert done.returncode == 0
    one = {"ratio": 2.5, "quick": True}
    assert figure(done) == {"fast": one, "slow": one}


def test_a_benchmark_that_fails_does_not_hide_the_others_nor_itself(folder: Folder) -> None:
    folder.plant("broken", "def main(arguments): raise RuntimeError('no disk')")
    folder.plant("fast", QUICK)
    done = folder.run("all")
    assert done.returncode == 1
    assert "failed: broken" in done.stdout
    assert "no disk" in done.stderr
    assert figure(done) == {"fast": {"ratio": 2.5, "quick": False}}


@pytest.mark.parametrize("arguments", [(), ("fats",), ("_data",)])
def test_an_unknown_name_lists_the_valid_ones(folder: Folder, arguments: tuple[str, ...]) -> None:
    folder.plant("fast", QUICK)
    folder.plant("slow", QUICK)
    done = folder.run(*arguments)
    assert done.returncode == 2
    assert "NAME is one of: all, fast, slow" in done.stderr


def test_a_benchmark_without_figures_is_an_error(folder: Folder) -> None:
    folder.plant("vague", "def main(arguments): return None")
    done = folder.run("vague")
    assert done.returncode == 1
    assert "must return a dict of figures, but returned None" in done.stderr
