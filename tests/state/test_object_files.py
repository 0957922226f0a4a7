"""A checkpoint in an object store: tasks read and write it themselves, one driver owns it, keys are nowhere."""

import http.server
import pickle
import random
import shutil
import threading

import pytest

from anabranch.api.session import from_epochs
from anabranch.engine.driver.epoch_jobs import EpochJobs
from anabranch.errors import CheckpointError, ProgramError, StorageError
from anabranch.state.host_cache import CacheSettings
from anabranch.state.object_files import S3Account, S3Files
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.object_store import ACCESS_KEY, BUCKET, SECRET_KEY
from tests.programs import COLUMNS, build, exact

EPOCHS = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(6)]


def test_what_hadoop_says_of_a_bucket_comes_before_what_it_says_of_all():
    account = S3Account.of_settings(
        {"fs.s3a.endpoint": "http://a:1/", "fs.s3a.bucket.b.access.key": "of b", "fs.s3a.access.key": "of all"}, "b"
    )
    assert (account.endpoint, account.is_secure, account.access_key, account.secret_key) == ("a:1", False, "of b", None)
    assert S3Account.of_settings({"fs.s3a.endpoint": "a"}, "b").is_secure
    assert not S3Account.of_settings({"fs.s3a.endpoint": "a", "fs.s3a.connection.ssl.enabled": "false"}, "b").is_secure
    assert S3Account.of_settings({}, "b") == S3Account()


@pytest.mark.parametrize("location", ["s3://", "/here", "http://a/b"])
def test_what_is_no_bucket_is_refused(location):
    with pytest.raises(ProgramError, match="expected s3://bucket/path"):
        S3Files(location, S3Account())


def test_a_query_on_hosts_that_keep_nothing_is_right_and_no_state_passes_through_the_driver(
    object_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(EpochJobs, "_supply", lambda self, name: pytest.fail("the driver was asked for a segment"))
    files, chance = object_store.files("strange"), random.Random(3)
    stream = build(from_epochs(EPOCHS, COLUMNS), ["running", "jump by both"])
    cache = CacheSettings(str(tmp_path / "cache"))
    run = ParallelRun(stream, "strange", channels=2, files=files, cache=cache, fresh_tasks=True)
    for epoch in range(len(EPOCHS)):
        for region in run.runner.functions:
            run.runner.rescale(region, chance.randint(1, 4))
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        run.run_epochs(epoch, epoch)
    assert exact(run.output) == exact(stream.run_sequential())
    assert CheckpointReader(files).stores()[0].keys > 0


def test_a_second_driver_fences_the_first_and_goes_on(object_store, tmp_path):
    files, written = object_store.files("fenced"), {}
    stream = build(from_epochs(EPOCHS, COLUMNS), ["running"])
    first = ParallelRun(stream, "fenced", files=files, written=written)
    first.run_epochs(last=2)
    second = ParallelRun(stream, "fenced", files=files, written=written)
    with pytest.raises(CheckpointError, match="has taken over"):
        first.run_epochs(3, 3)
    second.run_epochs()
    assert exact(second.output) == exact(stream.run_sequential())


def test_an_object_that_was_created_although_the_answer_was_lost_counts_as_created(object_store):
    files = object_store.files("lost")
    assert files.create("a", b"mine")
    assert files.create("a", b"mine") and not files.create("a", b"another's")


class Refusing(http.server.BaseHTTPRequestHandler):
    """Refuses everybody, and repeats the key that it was given."""

    def do_GET(self):
        body = (
            "<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code>"
            f"<Message>The key {ACCESS_KEY} does not exist; nor does {SECRET_KEY}</Message></Error>"
        ).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


def test_wrong_keys_are_an_error_that_names_the_file_and_no_key(caplog):
    pytest.importorskip("boto3")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account = S3Account(f"127.0.0.1:{server.server_port}", "us-east-1", False, ACCESS_KEY, SECRET_KEY)
    files = S3Files(f"s3://{BUCKET}/ck", account)
    try:
        for call in (
            lambda: files.read("a"),
            lambda: files.write("a", b"x"),
            lambda: files.create("a", b"x"),
            lambda: files.names(""),
        ):
            with pytest.raises(StorageError, match=rf"cannot (read|write) s3://{BUCKET}/ck/") as refused:
                call()
            shown = f"{refused.value!r} {refused.value.__cause__!r} {refused.value.__context__ and ''}"
            assert ACCESS_KEY not in shown and SECRET_KEY not in shown
    finally:
        server.shutdown()
        server.server_close()
    assert SECRET_KEY not in repr(account) + repr(vars(files)) + caplog.text


def test_a_store_that_is_not_there_or_a_bucket_that_is_not_is_an_error(object_store):
    nowhere = S3Files(f"s3://{BUCKET}/ck", S3Account("127.0.0.1:9", "us-east-1", False, "a", "b"))
    with pytest.raises(StorageError, match="cannot read"):
        nowhere.names("")
    with pytest.raises(StorageError, match="cannot write"):
        S3Files("s3://no-such-bucket/ck", object_store.account).write("a", b"x")


def test_files_travel_to_tasks(object_store):
    files = pickle.loads(pickle.dumps(object_store.files("travel")))
    files.write("a", b"x")
    assert object_store.files("travel").read("a") == b"x"
