"""Which Python `make` builds the virtual environment with, on Pythons that are sh scripts."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "find-python"


def install(folder: Path, name: str, version: str, *, new_enough: bool, has_venv: bool = True) -> Path:
    """A Python that answers the three questions the script asks, told apart by a word in each."""
    path = folder / name
    path.write_text(
        f"""#!/bin/sh
case $2 in
    *print*) echo {version} ;;
    *version_info*) exit {0 if new_enough else 1} ;;
    *ensurepip*) exit {0 if has_venv else 1} ;;
esac
"""
    )
    path.chmod(0o755)
    return path


def find(folder: Path, *candidates: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(SCRIPT), *candidates]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True)


def test_a_newer_python_is_found_behind_an_old_one(tmp_path: Path) -> None:
    install(tmp_path, "python3", "3.9.2", new_enough=False)
    newer = install(tmp_path, "python3.12", "3.12.1", new_enough=True)
    assert find(tmp_path).stdout.strip() == str(newer)


def test_the_python_that_was_named_is_the_only_candidate(tmp_path: Path) -> None:
    install(tmp_path, "python3", "3.12.1", new_enough=True)
    named = install(tmp_path, "mine", "3.11.0", new_enough=True)
    assert find(tmp_path, "mine").stdout.strip() == str(named)


@pytest.mark.parametrize(
    ("new_enough", "has_venv", "message"),
    [
        (False, True, "is Python 3.9.2, older than 3.11"),
        (True, False, "is Python 3.9.2 without the modules venv and ensurepip"),
    ],
)
def test_an_unfit_python_is_named_with_the_reason(
    tmp_path: Path, new_enough: bool, has_venv: bool, message: str
) -> None:
    install(tmp_path, "python3", "3.9.2", new_enough=new_enough, has_venv=has_venv)
    done = find(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert message in done.stderr
    assert "make venv PYTHON=" in done.stderr


def test_no_python_at_all_says_what_was_looked_for(tmp_path: Path) -> None:
    done = find(tmp_path)
    assert done.returncode == 1
    assert "Found none of: python3 " in done.stderr
