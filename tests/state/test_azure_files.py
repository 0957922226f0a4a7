"""A checkpoint in Azure's blob storage: the fence is a conditional write that is signed here.

Against Azurite where there is one (`npm install azurite`, its `azurite-blob` on the path); what needs no server is
tested without.
"""

import http.server
import pickle
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError, ProgramError, StorageError
from anabranch.state import azure_files
from anabranch.state.azure_files import AzureAccount, AzureFiles
from anabranch.state.host_cache import CacheSettings
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact

# The account that every Azurite has; it is in its documentation.
NAME = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ROOT = f"abfs://box@{NAME}.dfs.core.windows.net/ck"
EPOCHS = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(6)]


def test_what_hadoop_says_of_an_account_comes_before_what_it_says_of_all():
    host = "mine.dfs.core.windows.net"
    location = f"abfss://box@{host}/ck"
    said = {f"fs.azure.account.key.{host}": "of mine", "fs.azure.account.key": "of all"}
    account = AzureAccount.of_settings(said, location)
    assert (account.name, account.endpoint, account.is_secure, account.key) == ("mine", None, True, "of mine")
    assert set(said) <= set(AzureAccount.setting_names(location))
    assert AzureAccount.of_settings({"fs.azure.sas.fixed.token": "?sv=1"}, location).token == "sv=1"
    assert not AzureAccount.of_settings({}, location).can_sign
    emulated = AzureAccount.of_settings({"fs.azure.storage.emulator.account.name": "mine"}, location)
    assert (emulated.endpoint, emulated.is_secure) == ("127.0.0.1:10000", False)


@pytest.mark.parametrize("location", ["abfs://", "abfs://box/here", "s3://a/b", "/here"])
def test_what_is_no_container_is_refused(location):
    with pytest.raises(ProgramError, match="expected abfs://container@account"):
        AzureFiles(location, AzureAccount("a"))


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers PUTs as it is told."""

    statuses: list[int]
    asked: list[tuple[str, dict[str, str]]]

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, dict(self.headers.items())))
        status = self.statuses.pop(0)
        if not status:
            self.connection.close()  # no answer
            return
        self.send_response(status, f"said of {KEY}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def answering(monkeypatch):
    monkeypatch.setattr(azure_files, "_TRY_AGAIN_S", 0.0)
    handler = type("Handler", (Answering,), {"statuses": [], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, AzureAccount(NAME, f"127.0.0.1:{server.server_port}", False, KEY)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("statuses", "there", "made"),
    [
        ([201], None, True),
        ([412], b"another's", False),
        ([409], b"mine", True),
        ([503, 201], None, True),
        ([0, 409], b"mine", True),
        ([0, 409], b"another's", False),
    ],
)
def test_creating_succeeds_for_one_whatever_answers_are_lost(answering, monkeypatch, statuses, there, made):
    handler, account = answering
    handler.statuses += statuses
    monkeypatch.setattr(AzureFiles, "read", lambda self, name: there)
    assert AzureFiles(ROOT, account).create("a b", b"mine") is made and not handler.statuses
    path, headers = handler.asked[0]
    assert path == f"/{NAME}/box/ck/a%20b" and headers["If-None-Match"] == "*"
    assert headers["Authorization"].startswith(f"SharedKey {NAME}:") and KEY not in str(headers)


def test_who_may_not_write_is_told_so_without_a_key(answering):
    handler, account = answering
    handler.statuses += [403]
    with pytest.raises(StorageError, match=r"cannot write abfs://box@.*403") as refused:
        AzureFiles(ROOT, account).create("a", b"x")
    assert KEY not in str(refused.value) + repr(account)
    with pytest.raises(ProgramError, match=r"neither fs\.azure\.account\.key nor"):
        AzureFiles(ROOT, AzureAccount(NAME)).create("a", b"x")


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureAccount]:
    """A server that runs for these tests, with one container."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("there is no azurite-blob")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = str(tmp_path_factory.mktemp("azurite"))
    words = ["--silent", "--skipApiVersionCheck", "--location", place, "--blobHost", "127.0.0.1", "--blobPort"]
    server = subprocess.Popen([program, *words, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    account = AzureAccount(NAME, f"127.0.0.1:{port}", False, KEY)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                AzureFiles(ROOT, account)._system().create_dir("box")
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, "Azurite did not start"
                time.sleep(0.2)
        yield account
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def files(azurite: AzureAccount, request: pytest.FixtureRequest) -> AzureFiles:
    return AzureFiles(f"{ROOT}/{request.node.name}", azurite)


def test_files_are_written_read_in_parts_listed_and_removed(files):
    files = pickle.loads(pickle.dumps(files))
    files.write("state/a", b"0123456789")
    files.write("state/b", memoryview(b"x"))
    assert files.read("state/a") == b"0123456789" and files.read_range("state/a", 3, 4) == b"3456"
    assert files.names("state") == ["a", "b"] and files.names("nothing") == [] and files.read("state/c") is None
    files.delete("state/a")
    files.delete("state/a")
    assert files.names("state") == ["b"]
    files.clear("state")
    files.clear("state")
    assert files.names("state") == []


def test_one_of_many_creates_a_file(files):
    made = []
    threads = [
        threading.Thread(target=lambda at=at: made.append((files.create("owners/1", b"%d" % at), at)))
        for at in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (first,) = [at for is_made, at in made if is_made]
    assert files.read("owners/1") == b"%d" % first
    assert files.create("owners/1", b"%d" % first), "asked again, as if the answer had been lost"
    assert files.create("owners/a b+ü", b"") and files.read("owners/a b+ü") == b""


def test_a_second_driver_fences_the_first_and_goes_on(files, tmp_path: Path):
    written, cache = {}, CacheSettings(str(tmp_path / "cache"))
    stream = build(from_epochs(EPOCHS, COLUMNS), ["running", "jump by both"])
    first = ParallelRun(stream, "fenced", files=files, shared=False, written=written, cache=cache)
    first.run_epochs(last=2)
    second = ParallelRun(stream, "fenced", files=files, shared=False, written=written, cache=cache)
    with pytest.raises(CheckpointError, match="has taken over"):
        first.run_epochs(3, 3)
    shutil.rmtree(tmp_path / "cache")
    second.run_epochs()
    assert exact(second.output) == exact(stream.run_sequential())


def test_wrong_keys_are_an_error_that_names_no_key(azurite):
    wrong = AzureAccount(NAME, azurite.endpoint, False, KEY[::-1].replace("=", "a")[:86] + "==")
    files = AzureFiles(ROOT, wrong)
    for call in (lambda: files.read("a"), lambda: files.write("a", b"x"), lambda: files.create("a", b"x")):
        with pytest.raises(StorageError, match=r"cannot (read|write) abfs://box@") as refused:
            call()
        assert wrong.key not in f"{refused.value!r} {refused.value.__cause__!r}"
