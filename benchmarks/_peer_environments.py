"""Other systems, each in an environment of its own that is thrown away; and what a program costs, with all it starts.

    Environment ─► python -m venv, pip install ─► a program ─► watched: processor and wall seconds of the whole tree

What cannot be installed is passed over with the reason, which is printed and stands in the results.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_S = 0.05


class CannotRunError(Exception):
    """A system cannot be run here; why."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """What a system needs beside Python; nothing: this project's own environment."""

    packages: tuple[str, ...] = ()

    def python(self, place: Path, limit_s: float) -> str:
        """The path of its Python, made if need be."""
        if not self.packages:
            return sys.executable
        path = place / "bin" / "python"
        if not path.exists():
            self._run([sys.executable, "-m", "venv", str(place)], limit_s, "no virtual environment could be made")
            install = [str(path), "-m", "pip", "install", "--quiet", *self.packages]
            self._run(install, limit_s, f"{' '.join(self.packages)} cannot be installed")
        return str(path)

    def versions(self, python: str) -> str:
        """What was installed, as text."""
        if not self.packages:
            return ""
        code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
        names = [package.split("==")[0].split("[")[0] for package in self.packages]
        return subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=False).stdout.strip()

    def _run(self, command: Sequence[str], limit_s: float, problem: str) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise CannotRunError(f"{problem}: it took more than {limit_s:.0f} s") from None
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise CannotRunError(f"{problem}: {lines[-1] if lines else f'exit code {done.returncode}'}")


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a program took."""

    processor_s: float
    seconds: float

    def less(self, other: Spent) -> Spent:
        """What it took beyond another."""
        return Spent(self.processor_s - other.processor_s, self.seconds - other.seconds)


def watched(command: Sequence[str], environment: dict[str, str], log: Path, limit_s: float) -> Spent:
    """Run a program to its end, and add up the processor seconds of all processes that it started."""
    used: dict[int, float] = {}
    begun = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
        while process.poll() is None:
            used.update(_used_by(process.pid))
            if time.perf_counter() - begun > limit_s:
                os.killpg(process.pid, 9)
                process.wait()
                raise CannotRunError(f"it had not ended after {limit_s:.0f} s")
            time.sleep(_LOOK_EVERY_S)
    seconds = time.perf_counter() - begun
    if process.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise CannotRunError(f"it failed: {lines[-1] if lines else f'exit code {process.returncode}'}")
    return Spent(sum(used.values()), seconds)


def _used_by(session: int) -> dict[int, float]:
    """Process → its processor seconds so far, of all in a session: also of those whose parent has ended."""
    found: dict[int, float] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session:
                found[int(entry)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return found
