"""Files in Azure's blob storage: like those in S3 (`object_files.py`), with Azure's own conditional write.

pyarrow reads, writes, lists and deletes. An object is created only if there is none by a PUT with `If-None-Match: *`,
which is signed here with the account's key or sent with a shared access signature: no client of Azure's is needed. Who
is known to Azure in another way (an identity of the machine, a principal) has no key to sign with, and goes through
Hadoop. Tested against Azurite, Azure's emulator; it has no hierarchical namespaces.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import hmac
import http.client
import time
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlparse

from pyarrow import fs

from anabranch.errors import ProgramError
from anabranch.state.files import cannot_write
from anabranch.state.object_files import ObjectFiles

SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
_VERSION = "2021-08-06"
_CREATED, _CONDITION_FAILED, _CONFLICT = 201, 412, 409
_TRIES, _TRY_AGAIN_S, _PATIENCE_S = 4, 0.2, 60.0
_EMULATOR = "127.0.0.1:10000"


@dataclasses.dataclass(frozen=True)
class AzureAccount:
    """A storage account, and who asks it."""

    name: str
    endpoint: str | None = None
    """A host and port where the account's name begins the path, as an emulator has it; None: Azure's."""
    is_secure: bool = True
    key: str | None = dataclasses.field(default=None, repr=False)
    token: str | None = dataclasses.field(default=None, repr=False)
    """A shared access signature."""

    @classmethod
    def of_settings(cls, settings: Mapping[str, str | None], location: str) -> AzureAccount:
        """From what Hadoop calls ``fs.azure.…``; what is said of the account comes before what is said of all."""
        host = (urlparse(location).hostname or "").lower()
        name = host.partition(".")[0]

        def said(*names: str) -> str | None:
            return next((found for each in names if (found := settings.get(each))), None)

        emulated = bool(name) and settings.get("fs.azure.storage.emulator.account.name") in (name, host)
        token = said(f"fs.azure.sas.fixed.token.{host}", "fs.azure.sas.fixed.token")
        return cls(
            name,
            _EMULATOR if emulated else None,
            not emulated,
            said(f"fs.azure.account.key.{host}", "fs.azure.account.key"),
            None if token is None else token.lstrip("?"),
        )

    @staticmethod
    def setting_names(location: str) -> list[str]:
        """The settings that matter for a location."""
        host = (urlparse(location).hostname or "").lower()
        names = ["fs.azure.account.key", "fs.azure.sas.fixed.token"]
        return [*names, *(f"{name}.{host}" for name in names), "fs.azure.storage.emulator.account.name"]

    @property
    def can_sign(self) -> bool:
        """Whether a write on conditions can be made with it."""
        return bool(self.key or self.token)

    def hidden(self, text: object) -> str:
        """What a store said, in a line, without keys."""
        shown = next(iter(str(text).splitlines()), "")
        for secret in (self.key, self.token):
            shown = shown.replace(secret, "…").replace(quote(secret), "…") if secret else shown
        return shown


class AzureFiles(ObjectFiles):
    """Files below a path of a container. Picklable: tasks carry it.

    Parameters
    ----------
    root : str
        ``abfs://container@account.dfs.core.windows.net/path``, or with the scheme abfss, wasb or wasbs.
    account : AzureAccount
    """

    durable = True  # a PUT that was answered is kept

    def __init__(self, root: str, account: AzureAccount) -> None:
        self.root = root.rstrip("/")
        self.account: AzureAccount = account
        parts = urlparse(self.root)
        if parts.scheme not in SCHEMES or not parts.username or not parts.hostname:
            raise ProgramError(
                f"{root!r} is no location in Azure's storage: expected abfs://container@account.dfs.core.windows.net/path"
            )
        self._top = parts.username
        self._base = parts.path.strip("/")

    @staticmethod
    def is_location(location: str) -> bool:
        """Whether a location is in Azure's blob storage."""
        return urlparse(location).scheme in SCHEMES

    def _system(self) -> fs.FileSystem:
        return _system(self.account)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        problem: object = "no answer"
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_TRY_AGAIN_S * 2**attempt)
            try:
                status, problem = self._put_if_absent(name, bytes(data))
            except (OSError, http.client.HTTPException) as failed:
                problem = failed
                continue
            if status == _CREATED:
                return True
            if status in (_CONFLICT, _CONDITION_FAILED):
                there = self.read(name)
                if there is not None:
                    # An answer that was lost on its way made us ask twice: then what is there is ours.
                    return there == bytes(data)
            elif status < http.client.INTERNAL_SERVER_ERROR:
                break
        raise cannot_write(f"{self.root}/{name}", self.account.hidden(problem))

    def _put_if_absent(self, name: str, data: bytes) -> tuple[int, str]:
        """Ask once; the answer's status, and what it says."""
        account = self.account
        path = "/" + quote(f"{self._top}/{self._key(name)}")
        if account.endpoint:
            path = f"/{account.name}{path}"
        headers = {
            "If-None-Match": "*",
            "x-ms-blob-type": "BlockBlob",
            "x-ms-date": formatdate(usegmt=True),
            "x-ms-version": _VERSION,
        }
        if account.key:
            headers["Authorization"] = f"SharedKey {account.name}:{_signature(account, path, headers, len(data))}"
        elif account.token:
            path = f"{path}?{account.token}"
        else:
            raise ProgramError(f"{self.root}: neither fs.azure.account.key nor fs.azure.sas.fixed.token is set")
        host = account.endpoint or f"{account.name}.blob.core.windows.net"
        connect = http.client.HTTPSConnection if account.is_secure else http.client.HTTPConnection
        connection = connect(host, timeout=_PATIENCE_S)
        try:
            connection.request("PUT", path, data, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, f"{answer.status} {answer.reason} {answer.headers.get('x-ms-error-code', '')}".strip()
        finally:
            connection.close()


def _signature(account: AzureAccount, path: str, headers: Mapping[str, str], length: int) -> str:
    """Of a PUT, by the account's key: what the service calls Shared Key."""
    ours = sorted((name.lower(), value) for name, value in headers.items() if name.startswith("x-ms-"))
    named = "".join(f"{name}:{value}\n" for name, value in ours)
    # Encoding, language, length, MD5, type, date, if-modified-since, -match, -none-match, -unmodified-since, range.
    fields = ["PUT", "", "", str(length) if length else "", "", "", "", "", "", headers["If-None-Match"], "", ""]
    text = "\n".join(fields) + f"\n{named}/{account.name}{path}"
    digest = hmac.new(base64.b64decode(account.key or ""), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


@functools.lru_cache(maxsize=8)
def _system(account: AzureAccount) -> fs.FileSystem:
    """pyarrow's file system, one for each process and account."""
    try:
        from pyarrow.fs import AzureFileSystem
    except ImportError:
        raise ProgramError("state in Azure's storage needs a pyarrow that has AzureFileSystem") from None
    options: dict[str, Any] = {"account_key": account.key}
    if account.token:
        options = {"sas_token": account.token}
    if account.endpoint:
        scheme = "https" if account.is_secure else "http"
        options |= {"blob_storage_authority": account.endpoint, "blob_storage_scheme": scheme}
        options |= {"dfs_storage_authority": account.endpoint, "dfs_storage_scheme": scheme}
    return AzureFileSystem(account.name, **options)
