"""Pools beside each other on one host: each tells how many calls it has made, and sees what it does to the others.

Whoever looks only at his own rate takes ever more of what is scarce: of four operators that share sixteen cores, each
gains by another thread, and the others lose as much. So while a pool tries another level its rate is multiplied by what
became of the others' rates meanwhile. What is maximised is then the product of all rates: another thread pays only if
it brings more than it takes, and one that has more than the others gives some back. For that only one of them may try
levels at a time: they take turns.

Pools may be in different processes (Spark has one for each task that runs at a time), so they tell each other through
files, a few bytes each, in the host's directory for temporary files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

_ENTRY = struct.Struct("<qdi")
_TELL_S = 0.02
"""A pool tells at most so often."""
_STALE_S = 3.0
"""Who has not told anything for so long makes no calls."""
_TURN_S = 5.0
"""Who has not been heard of for so long has lost its turn."""
_TURN = struct.Struct("<d64s")
_RATIO_MAX = 4.0
_GONE_S = 3600.0


class Neighbours:
    """The other pools of a host, as one pool sees them.

    Parameters
    ----------
    directory : Path
        Where all of them tell.
    name : str
        What tells this pool from any other of the host.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._path = directory / f"{name}.calls"
        self._file = -1
        self._calls = 0
        self._told = 0.0
        self._begun: dict[str, tuple[int, float, int]] = {}
        self._levels: list[int] = []
        self._reference: dict[str, float] = {}
        self._has_turn = False
        self._turn_told = 0.0

    def tell(self, calls: int, now: float, level: int) -> None:
        """So many calls more have ended, at this level."""
        self._calls += calls
        if now - self._told < _TELL_S:
            return
        self._told = now
        if self._has_turn and now - self._turn_told > _TURN_S / 10:
            self.take_turn(now)  # still here
        with contextlib.suppress(OSError):  # alone, then
            if self._file >= 0 and not os.fstat(self._file).st_nlink:  # swept away: it was quiet for long
                os.close(self._file)
                self._file = -1
            if self._file < 0:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            os.pwrite(self._file, _ENTRY.pack(self._calls, now, level), 0)

    @staticmethod
    def sweep(directory: Path) -> None:
        """Remove what pools left behind that were killed: whatever nobody wrote to for so long."""
        with contextlib.suppress(OSError):
            for path in directory.iterdir():
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _GONE_S:
                        path.unlink()

    def begin(self) -> None:
        """A period begins."""
        self._begun = self._read()

    def factor(self, is_held: bool) -> float:
        """What became of the others since the level was held last, as a factor; 1 if it is held."""
        rates = self._rates()
        if is_held or not self._reference:
            self._reference = rates
            return 1.0
        found = 1.0
        for name, rate in rates.items():
            before = self._reference.get(name, 0.0)
            if before > 0 and rate > 0:
                found *= min(_RATIO_MAX, max(1 / _RATIO_MAX, rate / before))
        return found

    @property
    def are_there(self) -> bool:
        """Whether others made calls in the period that was judged last."""
        return bool(self._levels)

    @property
    def level(self) -> float:
        """The level of the others, on average."""
        return sum(self._levels) / len(self._levels) if self._levels else 0.0

    def take_turn(self, now: float) -> bool:
        """Whether no other pool tries levels from now on, until the turn is given back."""
        self._has_turn = self._change_turn(now, self._path.name.encode()[-64:])
        self._turn_told = now
        return self._has_turn

    def give_turn(self) -> None:
        """Another may have it."""
        if self._has_turn:
            self._change_turn(0.0, b"")
        self._has_turn = False

    def _change_turn(self, now: float, holder: bytes) -> bool:
        """Write down who has the turn, unless it is another's; whether it is ours now."""
        mine = self._path.name.encode()[-64:]
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._directory / "turn", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # for a few microseconds
                written = os.pread(file, _TURN.size, 0)
                if len(written) == _TURN.size:
                    at, name = _TURN.unpack(written)
                    if name.rstrip(b"\0") not in (b"", mine) and abs(now - at) < _TURN_S:
                        return False
                os.pwrite(file, _TURN.pack(now, holder), 0)
            finally:
                os.close(file)
        return True

    def close(self) -> None:
        self.give_turn()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _rates(self) -> dict[str, float]:
        """Calls per second of each of the others, in this period."""
        found = {}
        self._levels = []
        for name, (calls, at, level) in self._read().items():
            before = self._begun.get(name)
            if before is not None and at > before[1]:
                found[name] = (calls - before[0]) / (at - before[1])
                self._levels.append(max(1, level))
        return found

    def _read(self) -> dict[str, tuple[int, float, int]]:
        entries: dict[str, tuple[int, float, int]] = {}
        with contextlib.suppress(OSError):
            for path in self._directory.glob("*.calls"):
                if path != self._path:
                    with contextlib.suppress(OSError, struct.error):
                        entries[path.name] = _ENTRY.unpack(path.read_bytes())
        newest = max((at for _, at, _ in entries.values()), default=0.0)
        newest = max(newest, self._told)
        return {name: entry for name, entry in entries.items() if newest - entry[1] < _STALE_S}
