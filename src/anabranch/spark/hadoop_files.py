"""Files on any path that the Spark session can write: local ones directly, others through Hadoop.

What a query itself keeps in an S3 store is not read through Hadoop: Python reaches it, in every process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from anabranch.state.azure_files import AzureAccount, AzureFiles
from anabranch.state.files import Files, LocalFiles, cannot_read, cannot_write, passing_name
from anabranch.state.object_files import S3Account, S3Files


def local_path(location: str) -> str | None:
    """The path a location has on this machine, or None if it is not on this machine."""
    parts = urlparse(location)
    if parts.scheme == "":
        return location
    return unquote(parts.path) if parts.scheme == "file" else None


def qualified(spark: SparkSession, location: str) -> str:
    """A location as Spark would read it: without a scheme it is on the default file system of the session.

    What is on this machine comes back as an absolute path, with its scheme only where that is not the default.
    """
    local = local_path(location)
    if local is None:
        return location.rstrip("/")
    path = os.path.abspath(local)
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    if default.startswith("file:"):
        return path
    return f"file://{path}" if urlparse(location).scheme == "file" else default.rstrip("/") + path


def open_files(spark: SparkSession, location: str, durable: bool = False) -> Files:
    """The files below a location. `durable`: what is written survives a power cut."""
    location = qualified(spark, location)
    path = local_path(location)
    return LocalFiles(path, durable) if path is not None else HadoopFiles(spark, location, durable)


def open_state_files(spark: SparkSession, location: str, durable: bool = False) -> Files:
    """The files of a checkpoint's own part below a location: in an object store every process reaches them itself."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    if S3Files.is_location(location):
        bucket = urlparse(location).netloc
        said = {name: _setting(configuration, name) for name in S3Account.setting_names(bucket)}
        return S3Files(location, S3Account.of_settings(said, bucket))
    if AzureFiles.is_location(location):
        said = {name: _setting(configuration, name) for name in AzureAccount.setting_names(location)}
        account = AzureAccount.of_settings(said, location)
        if account.can_sign:  # an identity that only Hadoop knows of goes on through Hadoop
            return AzureFiles(location, account)
    return open_files(spark, location, durable)


def _setting(configuration: Any, name: str) -> str | None:
    """A setting of Hadoop's; keys may be in a store of credentials, which Hadoop asks."""
    found = configuration.getPassword(name) if ".key" in name or ".token" in name else configuration.get(name)
    return None if found is None else "".join(found).strip()


class HadoopFiles:
    """Files through Hadoop's FileSystem: HDFS, object stores, whatever Spark is configured for.

    PySpark has no public file API, so this goes through the JVM gateway; only the driver has one.
    """

    def __init__(self, spark: SparkSession, root: str, durable: bool = False) -> None:
        self.root = root.rstrip("/")
        self.durable = durable
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.hadoop.io.IOUtils
        self._bytes = jvm.java.io.ByteArrayOutputStream
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        with self._reading(""):
            self._system = self._path(self.root).getFileSystem(configuration)

    def _at(self, name: str) -> Any:
        return self._path(f"{self.root}/{name}" if name else self.root)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Py4JJavaError, OSError) as problem:
            raise cannot_write(f"{self.root}/{name}", _first_line(problem)) from None

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Py4JJavaError, OSError) as problem:
            raise cannot_read(f"{self.root}/{name}", _first_line(problem)) from None

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        target, passing = self._at(name), self._at(passing_name(name))
        with self._writing(name):
            try:
                self._fill(self._system.create(passing, True), data)
                if modified is not None:
                    self._system.setTimes(passing, modified * 1000, -1)
                # FileSystem.rename does not replace; a reader between the two steps finds no file and asks again.
                if self._system.exists(target):
                    self._system.delete(target, False)
                if not self._system.rename(passing, target):
                    raise OSError(f"cannot rename {passing} to it")
            except BaseException:
                with contextlib.suppress(Py4JJavaError):
                    self._system.delete(passing, False)
                raise

    def create(self, name: str, data: bytes | memoryview) -> bool:
        target = self._at(name)
        with self._writing(name):
            try:
                # Whether there is one is for the store to say, in one step with making it. A reader may find it
                # incomplete for a moment; a driver that takes a manifest for damaged so finds it whole when it commits.
                stream = self._system.create(target, False)
            except Py4JJavaError as problem:
                if self._system.exists(target):
                    return False
                raise problem from None
            try:
                self._fill(stream, data)
            except BaseException:
                self._system.delete(target, False)
                raise
            return True

    def _fill(self, stream: Any, data: bytes | memoryview) -> None:
        try:
            stream.write(bytes(data))
            if self.durable:
                stream.hsync()
        finally:
            stream.close()

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        data = self.read(name)  # only the driver has Hadoop, and it hands on whole files
        return None if data is None else data[start : start + size]

    def read(self, name: str) -> bytes | None:
        path = self._at(name)
        with self._reading(name):
            if not self._system.exists(path):
                return None
            stream = self._system.open(path)
            try:
                buffer = self._bytes()
                self._io.copyBytes(stream, buffer, 1 << 20, False)
                return bytes(buffer.toByteArray())
            finally:
                stream.close()

    def names(self, directory: str) -> list[str]:
        path = self._at(directory)
        with self._reading(directory):
            if not self._system.exists(path):
                return []
            return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def delete(self, name: str) -> None:
        with self._writing(name):
            self._system.delete(self._at(name), False)

    def clear(self, directory: str) -> None:
        with self._writing(directory):
            self._system.delete(self._at(directory), True)


def _first_line(problem: Exception) -> str:
    """What Java says, without its stack."""
    java = getattr(problem, "java_exception", None)
    return str(problem if java is None else java.toString()).splitlines()[0]
