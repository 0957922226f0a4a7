"""Files on any path that the Spark session can write: local ones directly, others through Hadoop."""

from __future__ import annotations

import os
import uuid
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from anabranch.state.files import Files, LocalFiles


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


def open_files(spark: SparkSession, location: str) -> Files:
    """The files below a location."""
    location = qualified(spark, location)
    path = local_path(location)
    return LocalFiles(path) if path is not None else HadoopFiles(spark, location)


class HadoopFiles:
    """Files through Hadoop's FileSystem: HDFS, object stores, whatever Spark is configured for.

    PySpark has no public file API, so this goes through the JVM gateway; only the driver has one.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.hadoop.io.IOUtils
        self._bytes = jvm.java.io.ByteArrayOutputStream
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._system = self._path(self.root).getFileSystem(configuration)

    def _at(self, name: str) -> Any:
        return self._path(f"{self.root}/{name}")

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        target = self._at(name)
        passing = self._at(f"{name}.{uuid.uuid4().hex[:12]}.tmp")
        passing = self._path(passing.getParent(), "_" + passing.getName())
        stream = self._system.create(passing, True)
        try:
            stream.write(bytes(data))
        finally:
            stream.close()
        if modified is not None:
            self._system.setTimes(passing, modified * 1000, -1)
        # FileSystem.rename does not replace; a reader between the two steps finds no file and asks again.
        if self._system.exists(target):
            self._system.delete(target, False)
        if not self._system.rename(passing, target):
            raise OSError(f"cannot rename {passing} to {target}")

    def read(self, name: str) -> bytes | None:
        path = self._at(name)
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
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def delete(self, name: str) -> None:
        self._system.delete(self._at(name), False)
