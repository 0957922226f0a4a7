"""A real server that speaks S3, in a process of its own: moto, on loopback, in memory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from anabranch.state.object_files import S3Account, S3Files

BUCKET = "anabranch-tests"
_START_SECONDS_MAX = 60
# Keys that would be found wherever they are written down.
ACCESS_KEY, SECRET_KEY = "AKIAISNOTWRITTEN", "neither/is+this/secret"


class ObjectStore:
    """A server with one bucket."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.account = S3Account.of_settings(self.settings, BUCKET)

    @property
    def settings(self) -> dict[str, str]:
        """As Hadoop is told of it."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
        }

    def files(self, path: str) -> S3Files:
        return S3Files(f"s3://{BUCKET}/{path}", self.account)

    def make_bucket(self) -> None:
        import boto3

        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **keys).create_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server that runs for a while."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-c", program], **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert server.poll() is None and time.monotonic() < deadline, "the object store did not start"
            time.sleep(0.05)
        store = ObjectStore(port)
        store.make_bucket()
        yield store
    finally:
        server.kill()
        server.wait()
