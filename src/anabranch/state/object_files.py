"""Files in an object store, S3 or another: every process reaches them by itself, none through the driver.

    executor ── segment ──► pyarrow's S3 file system ──►  bucket/path/state/…      whole or not at all: one PUT
    driver ──── .begun, manifest, owner ── PUT, If-None-Match: * ──► bucket/path/… one of several succeeds

pyarrow reads, writes, lists and deletes. What it cannot do is create an object only if there is none, on which all
fencing rests: that is the store's own conditional write, through boto3, which therefore only the driver needs.

Who may do so is said by Spark's Hadoop configuration, or found where the SDK looks (environment, profile, the machine's
role). Keys travel to tasks as Spark's own do; they are in no file, no log and no error of ours.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import fs

from anabranch.errors import ProgramError
from anabranch.state.files import cannot_read, cannot_write

SCHEMES = ("s3", "s3a", "s3n")
_EXISTS, _CONFLICT = 412, 409
_CONFLICTS_MAX = 10


class Account(Protocol):
    """Where a store is and who asks it."""

    def hidden(self, text: object) -> str:
        """What a store said, in a line, without keys."""


@dataclasses.dataclass(frozen=True)
class S3Account:
    """Where an S3 store is and who asks it; what is None is found where the SDK looks for it."""

    endpoint: str | None = None
    """A host and port, perhaps with a scheme; None: Amazon's."""
    region: str | None = None
    is_secure: bool = True
    access_key: str | None = dataclasses.field(default=None, repr=False)
    secret_key: str | None = dataclasses.field(default=None, repr=False)
    session_token: str | None = dataclasses.field(default=None, repr=False)

    @classmethod
    def of_settings(cls, settings: Mapping[str, str | None], bucket: str) -> S3Account:
        """From what Hadoop calls ``fs.s3a.…``; those of the bucket come before those of all."""

        def said(name: str) -> str | None:
            return settings.get(f"fs.s3a.bucket.{bucket}.{name}") or settings.get(f"fs.s3a.{name}") or None

        endpoint = said("endpoint")
        scheme, _, host = (endpoint or "").rpartition("://")
        secure = scheme != "http" if scheme else (said("connection.ssl.enabled") or "true").lower() != "false"
        keys = (said("access.key"), said("secret.key"), said("session.token"))
        return cls(host.rstrip("/") or None, said("endpoint.region"), secure, *keys)

    @staticmethod
    def setting_names(bucket: str) -> list[str]:
        """The settings that matter for a bucket."""
        names = ("endpoint", "endpoint.region", "connection.ssl.enabled", "access.key", "secret.key", "session.token")
        return [f"fs.s3a.{of}{name}" for of in ("", f"bucket.{bucket}.") for name in names]

    def hidden(self, text: object) -> str:
        """What a store said, in a line, without keys."""
        shown = next(iter(str(text).splitlines()), "")
        for secret in (self.access_key, self.secret_key, self.session_token):
            shown = shown.replace(secret, "…") if secret else shown
        return shown


class ObjectFiles(abc.ABC):
    """Files below a path of a store, through a file system of pyarrow's: all but how one is created only if absent."""

    root: str
    durable: bool
    account: Account
    _top: str
    """The bucket or container, as pyarrow's paths begin with it."""
    _base: str
    """The path in it."""

    @abc.abstractmethod
    def _system(self) -> fs.FileSystem:
        """pyarrow's file system, one for each process and account."""

    @abc.abstractmethod
    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Make a file if there is none; whether it is this one that is there now."""

    def _key(self, name: str) -> str:
        return "/".join(filter(None, (self._base, name)))

    def _at(self, name: str) -> str:
        return f"{self._top}/{self._key(name)}"

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as problem:
            raise cannot_read(f"{self.root}/{name}", self.account.hidden(problem)) from None

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as problem:
            raise cannot_write(f"{self.root}/{name}", self.account.hidden(problem)) from None

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        with self._writing(name), self._system().open_output_stream(self._at(name)) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes | None:
        try:
            with self._reading(name), self._system().open_input_stream(self._at(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        try:
            with self._reading(name), self._system().open_input_file(self._at(name)) as file:
                return bytes(file.read_at(size, start))
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        selector = fs.FileSelector(self._at(directory).rstrip("/"), allow_not_found=True)
        try:
            with self._reading(directory):
                return sorted(each.base_name for each in self._system().get_file_info(selector))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._removing(name):
            self._system().delete_file(self._at(name))

    def clear(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._removing(directory):
            self._system().delete_dir(self._at(directory))

    @contextlib.contextmanager
    def _removing(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as problem:
            raise cannot_write(f"{self.root}/{name}", self.account.hidden(problem)) from None


class S3Files(ObjectFiles):
    """Files below a path of a bucket. Picklable: tasks carry it.

    Parameters
    ----------
    root : str
        ``s3://bucket/path``, or with the scheme s3a or s3n.
    account : S3Account
    """

    durable = True  # a PUT that was answered is kept

    def __init__(self, root: str, account: S3Account) -> None:
        self.root = root.rstrip("/")
        self.account: S3Account = account
        parts = urlparse(self.root)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise ProgramError(f"{root!r} is no location in an S3 store: expected s3://bucket/path")
        self.bucket = self._top = parts.netloc
        self._base = parts.path.strip("/")

    @staticmethod
    def is_location(location: str) -> bool:
        """Whether a location is in an S3 store."""
        return urlparse(location).scheme in SCHEMES

    def _system(self) -> fs.FileSystem:
        return _system(self.account)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        client = _client(self.account)
        from botocore.exceptions import BotoCoreError, ClientError

        for _ in range(_CONFLICTS_MAX):
            try:
                client.put_object(Bucket=self.bucket, Key=self._key(name), Body=bytes(data), IfNoneMatch="*")
                return True
            except ClientError as problem:
                status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if status == _EXISTS:
                    # An answer that was lost on its way made the client ask twice: then what is there is ours.
                    return self.read(name) == bytes(data)
                if status != _CONFLICT:  # which is: somebody else is at it, ask again
                    raise cannot_write(f"{self.root}/{name}", self.account.hidden(problem)) from None
            except BotoCoreError as problem:
                raise cannot_write(f"{self.root}/{name}", self.account.hidden(problem)) from None
        raise cannot_write(f"{self.root}/{name}", "others write it all the time")


@functools.lru_cache(maxsize=8)
def _system(account: S3Account) -> fs.S3FileSystem:
    """pyarrow's file system, one for each process and account."""
    options: dict[str, Any] = {
        "access_key": account.access_key,
        "secret_key": account.secret_key,
        "session_token": account.session_token,
        "region": account.region or ("us-east-1" if account.endpoint else None),
        "scheme": "https" if account.is_secure else "http",
        "endpoint_override": account.endpoint,
        "background_writes": False,
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return fs.S3FileSystem(**given, allow_delayed_open=True)  # small files are one request instead of three
    except TypeError:  # a pyarrow that does not know it
        return fs.S3FileSystem(**given)


@functools.lru_cache(maxsize=8)
def _client(account: S3Account) -> Any:
    """A client that can write on conditions."""
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError:
        raise ProgramError(
            "a checkpoint in an S3 store needs boto3 where the driver runs: pip install 'anabranch[s3]'"
        ) from None
    scheme = "https" if account.is_secure else "http"
    return boto3.client(
        "s3",
        endpoint_url=f"{scheme}://{account.endpoint}" if account.endpoint else None,
        aws_access_key_id=account.access_key,
        aws_secret_access_key=account.secret_key,
        aws_session_token=account.session_token,
        region_name=account.region or "us-east-1",
        config=Config(s3={"addressing_style": "path"} if account.endpoint else {}),
    )
