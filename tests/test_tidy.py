"""The rules of style and layering, as tests.

Every rule is a function from a source text to complaints, so that the second half of this file can plant a
breach and see the rule find it.
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.faults import POINTS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "anabranch"

FILE_LINES_MAX = 500

# ---- the layers ----

# Each part may import, when it runs, only what stands above it. `errors` and `faults` are for everybody.
LAYERS: list[set[str]] = [
    {"errors", "faults"},
    {"program"},
    {"operators"},
    {"compiler", "partitioning", "control"},
    {"state"},
    {"engine"},
    {"spark", "papers"},
    {"api"},
    {"testing", "cli"},
    {"sim"},
    {"__init__"},
]
# Within a row nobody imports a neighbour, but for these.
NEIGHBOURS: dict[str, set[str]] = {}
MAY_IMPORT = {
    part: set().union(*LAYERS[:row]) | NEIGHBOURS.get(part, set()) for row, parts in enumerate(LAYERS) for part in parts
}
# The papers' machine and the simulator are beside the product: nothing imports them.
for part in MAY_IMPORT:
    MAY_IMPORT[part] -= {"papers", "sim"}
# Load curves and the printing of worlds are of one kind for both.
MAY_IMPORT["papers"] |= {"sim"}
for part in ("cli", "testing", "sim"):
    MAY_IMPORT[part] |= {"__init__"}

PURE = {"program", "operators", "compiler", "partitioning", "control", "papers"}
# The engine reads clocks and writes files, but for these.
PURE_MODULES = {
    "anabranch.engine.sequential",
    "anabranch.engine.worker.batches",
    "anabranch.engine.worker.packets",
    "anabranch.engine.worker.stage",
    "anabranch.engine.worker.timing",
    "anabranch.engine.worker.trails",
}


def is_pure(module: str) -> bool:
    return layer_of(module) in PURE or any(module == each or module.startswith(f"{each}.") for each in PURE_MODULES)


# ---- what pure code must not touch ----

# Modules that read a clock, do I/O or keep global randomness; with the names in them that do nothing of it.
IMPURE: dict[str, set[str]] = {
    "asyncio": set(),
    "fileinput": set(),
    "glob": set(),
    "http": set(),
    "importlib": set(),  # it would get round this list
    "io": {"BytesIO", "StringIO"},
    "logging": set(),
    "mmap": set(),
    "multiprocessing": set(),
    "os": set(),
    "pathlib": {"PurePath", "PurePosixPath", "PureWindowsPath"},
    "py4j": set(),
    "pyspark": set(),
    "random": {"Random"},
    "requests": set(),
    "sched": set(),
    "secrets": set(),
    "shutil": set(),
    "signal": set(),
    "socket": set(),
    "sqlite3": set(),
    "subprocess": set(),
    "tempfile": set(),
    "time": set(),
    "timeit": set(),
    "urllib": {"parse"},
    "uuid": {"UUID", "uuid3", "uuid5"},
}
# Impure functions that a file of pure code may import as objects, to know them when it sees them in the code of
# an operator, but not call: (file, module) to the names.
RECOGNISED: dict[tuple[str, str], set[str]] = {
    # The table of functions whose result the arguments do not decide: an operator that calls one is refused.
    ("anabranch.compiler.reading.known.impurities", "uuid"): {"uuid1", "uuid4"},
}
IMPURE_BUILTINS = {"open", "input", "print", "breakpoint", "__import__"}
CLOCK_METHODS = {"now", "utcnow", "today"}
STANDARD_STREAMS = {"stdin", "stdout", "stderr"}
# numpy's generators are fine when they are seeded; everything else in numpy.random is one global generator.
NUMPY_GENERATORS = {"default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "BitGenerator"}
SEEDED = {"Random", "default_rng", "PCG64", "Philox", "SeedSequence"}


@dataclass(frozen=True)
class Import:
    """One imported name: ``from a.b import c`` is module ``a.b``, name ``c``; ``import a.b`` has no name."""

    module: str
    name: str | None
    line: int


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression that is nothing else; to write every expression out takes minutes."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def type_checking_only(tree: ast.Module) -> set[ast.AST]:
    """The nodes that exist for the type checker and never run."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in node.body:
                skipped.update(ast.walk(statement))
    return skipped


def running_nodes(source: str) -> list[ast.AST]:
    tree = ast.parse(source)
    skipped = type_checking_only(tree)
    return [node for node in ast.walk(tree) if node not in skipped]


@functools.cache  # three rules ask for those of every file
def imports(source: str, module: str) -> tuple[Import, ...]:
    """What the module imports when it runs, inside functions too. `module` is ``anabranch.engine.worker.packets``, or
    ``anabranch.operators.__init__`` for a package: relative imports count from there."""
    return tuple(_imports(source, module))


def _imports(source: str, module: str) -> Iterator[Import]:
    for node in running_nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield Import(base, alias.name, node.lineno)


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported_layer(imported: Import) -> str | None:
    """The part of our own package that an import leads to."""
    if imported.module.split(".")[0] != "anabranch":
        return None
    if imported.module == "anabranch" and imported.name in MAY_IMPORT:
        return imported.name
    return layer_of(imported.module)


# ---- the rules ----


def layering_breaches(source: str, module: str) -> list[str]:
    layer = layer_of(module)
    commands = [found for found in imports(source, module) if "__main__" in (found.module.split(".")[-1], found.name)]
    if commands:
        return [f"line {found.line}: {found.module} is a command, which nobody may import" for found in commands]
    if layer not in MAY_IMPORT:
        return [f"{layer} is in no layer: give it a line in MAY_IMPORT, here, and in docs/architecture.md"]
    allowed = MAY_IMPORT[layer] | {layer}
    return [
        f"line {found.line}: {layer} may not import {target}; it may import {sorted(allowed)}"
        for found in imports(source, module)
        if (target := imported_layer(found)) is not None and target not in allowed
    ]


def pyspark_breaches(source: str, module: str) -> list[str]:
    if layer_of(module) == "spark":
        return []
    return [
        f"line {found.line}: only spark/ imports {found.module} at run time; for types: `if TYPE_CHECKING:`"
        for found in imports(source, module)
        if found.module.split(".")[0] in ("pyspark", "py4j")
    ]


def purity_breaches(source: str, module: str) -> list[str]:
    # A __main__ is a command: it prints, and may look at the clock to know when to stop. Nobody imports it.
    if not is_pure(module) or module.endswith(".__main__"):
        return []
    breaches = []
    recognised: set[str] = set()
    for found in imports(source, module):
        package = found.module.split(".")[0]
        if found.name in RECOGNISED.get((module, found.module), ()):
            recognised.add(found.name)
        elif package in IMPURE and found.name not in IMPURE[package]:
            breaches.append(f"line {found.line}: pure code may not import {found.module}")
    for node in running_nodes(source):
        if (problem := impure_expression(node)) is not None:
            breaches.append(f"line {node.lineno}: {problem}")
        elif (name := misused(node, recognised)) is not None:
            breaches.append(f"line {node.lineno}: {name} is here to be recognised: it may only be a key of a table")
    return breaches


def misused(node: ast.AST, recognised: set[str]) -> str | None:
    """A recognised function in any place but among the keys of a dict display; or renamed, so that it is not seen."""
    match node:
        case ast.alias(name=name, asname=str()) if name in recognised:
            return name
        case ast.Dict():
            parts: list[ast.AST] = list(node.values)
        case _:
            parts = list(ast.iter_child_nodes(node))
    return next((part.id for part in parts if isinstance(part, ast.Name) and part.id in recognised), None)


def impure_expression(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in IMPURE_BUILTINS:
            return f"pure code may not call {name}()"
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in CLOCK_METHODS:
            if re.search(r"\b(datetime|date|Timestamp)\b", ast.unparse(called.value)):
                return f"pure code has no clock: {ast.unparse(called)}()"
        case ast.Call(func=called, args=[], keywords=[]) if ast.unparse(called).split(".")[-1] in SEEDED:
            return f"{ast.unparse(called)}() needs a seed"
        case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in STANDARD_STREAMS:
            return f"pure code may not use sys.{name}"
        case ast.Attribute(value=holder, attr=name) if name not in NUMPY_GENERATORS:
            if ast.unparse(holder) in ("np.random", "numpy.random"):
                return f"numpy.random.{name} is global randomness; use a seeded default_rng"
    return None


def hash_breaches(source: str, module: str) -> list[str]:
    """``hash()`` of a string differs from process to process; only ``__hash__`` and tables of sets deal with it."""
    if module == "anabranch.program.set_tables" or "hash" not in source:
        return []
    breaches = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and dotted(node.func) == "hash" and function != "__hash__":
            breaches.append(f"line {node.lineno}: hash() is not stable; use anabranch.partitioning's")
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return breaches


def length_breaches(source: str, module: str) -> list[str]:
    lines = source.count("\n")
    return [f"{lines} lines; a file is one idea, in {FILE_LINES_MAX} at most"] if lines > FILE_LINES_MAX else []


def unfinished_breaches(text: str) -> list[str]:
    return [
        f"line {number}: finish it, or file an issue"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"\b(TODO|FIXME|XXX)\b", line)
    ]


def workplace_breaches(text: str, may_skip: bool) -> list[str]:
    """Paths of the place where this was written. A test may look there if it skips where there is none."""
    if may_skip and re.search(r"\bpytest\.(mark\.)?skip", text):
        return []
    return [
        f"line {number}: a path of the workplace"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"(?<![\w.])/work/|\.\./shared\b", line)
    ]


def dead_path_breaches(text: str) -> list[str]:
    """Files and modules of this repository that a text names and that are not there (any more).

    Paths may begin at the root or at the package (`engine/worker/tasks.py`), modules at the package, between backticks
    (`engine.worker.tasks.ChannelTask`).
    """
    parts = "|".join(sorted(path.stem for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"))
    roots = "tests|benchmarks|experiments|examples|docs|scripts|src"
    named = rf"(?<![\w/.-])((?:{roots}|{parts})/[\w/-]+\.(?:py|md|json|txt))\b"
    dotted = rf"`((?:{parts})(?:\.\w+)+)(?:\(\))?`"
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for path in re.findall(named, line):
            if not (ROOT / path).exists() and not (PACKAGE / path).exists() and not path.endswith("/NAME.py"):
                found.append(f"line {number}: there is no {path}")
        for name in re.findall(dotted, line):
            steps = name.split(".")
            # Settings of Spark's, and files whose names begin like a package of ours.
            if not name.startswith("spark.") and steps[-1] != "json" and not _is_module(steps):
                found.append(f"line {number}: there is no {name}")
    return found


def _is_module(steps: list[str]) -> bool:
    """Whether a dotted name is a package or module of ours, or begins with one and goes on with a name in it."""
    if (PACKAGE / "/".join(steps)).is_dir():
        return True
    for count in range(2, len(steps) + 1):
        file = (PACKAGE / "/".join(steps[:count])).with_suffix(".py")
        if file.exists():
            return (
                count == len(steps) or re.search(rf"\b{steps[count]}\b", file.read_text(encoding="utf-8")) is not None
            )
    return (
        len(steps) == 2
        and re.search(rf"\b{steps[1]}\b", (PACKAGE / steps[0] / "__init__.py").read_text(encoding="utf-8")) is not None
    )


def shared_clock_breaches(text: str) -> list[str]:
    """A clock replaced for the whole process: threads of libraries that sleep in a loop would then spin."""
    return [
        f"line {number}: replace the clock of one module, not that of the process"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"""setattr\(\s*(time\s*,|["']time\.)""", line)
    ]


def shared_import_breaches(source: str, module: str) -> list[str]:
    """One way to import what tests share: by its whole name, which Spark's workers can import too."""
    shared = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {
        path.name for path in (ROOT / "tests").iterdir() if path.is_dir()
    }
    return [
        f"line {found.line}: import it as tests.…{found.module}"
        for found in imports(source, module)
        if found.module.split(".")[0] in shared - {"benchmarks", "examples", "__init__"}
    ]


# ---- the house as a whole: names, cycles, state, maps ----


def sibling_edges(sources: dict[str, str]) -> dict[tuple[str, str], str]:
    """Who imports whom, of folders and of files beside them: the pair, and a module that does it.

    Two files that stand side by side may import each other's names for types; a folder is read as a whole.
    """
    packages = {module.rpartition(".")[0] for module in sources}
    packages |= {name for package in packages for name in _prefixes(package)}
    edges: dict[tuple[str, str], str] = {}
    for module, source in sources.items():
        for found in imports(source, module):
            target = f"{found.module}.{found.name}" if f"{found.module}.{found.name}" in packages else found.module
            mine, theirs = module.split("."), target.split(".")
            at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            if at is None:
                continue
            one, other = ".".join(mine[: at + 1]), ".".join(theirs[: at + 1])
            if one in packages or other in packages:
                edges.setdefault((one, other), module)
    return edges


def _prefixes(package: str) -> list[str]:
    parts = package.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def cycle_breaches(sources: dict[str, str]) -> list[str]:
    """Folders that import each other, or files beside them, directly or by way of others: neither can be read alone."""
    edges = sibling_edges(sources)
    reached: dict[str, set[str]] = {}
    for one, other in edges:
        reached.setdefault(one, set()).add(other)
    changed = True
    while changed:
        changed = False
        for targets in reached.values():
            more = set().union(*(reached.get(each, set()) for each in targets)) - targets
            changed = changed or bool(more)
            targets |= more
    return sorted(one for one, targets in reached.items() if one in targets)


def repeated_class_breaches(sources: dict[str, str]) -> list[str]:
    """Public classes of one name in two modules: a reader who searches for one finds the other."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(module)
    return sorted(name for name, where in found.items() if len(where) > 1)


def repeated_file_breaches(sources: dict[str, str]) -> list[str]:
    """Files of one name in two folders."""
    names = [module.rpartition(".")[2] for module in sources]
    return sorted({name for name in names if names.count(name) > 1 and not name.startswith("__")})


MUTATORS = {
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "appendleft", "popleft"),
    *("add", "discard", "update", "setdefault", "popitem"),
}
CELLS = {"ContextVar", "local", "Lock", "RLock", "count", "cycle"}


def module_state_breaches(source: str, module: str) -> list[str]:
    """Names of a pure module that its functions change: two programs in one process would share them."""
    if not is_pure(module) or module.endswith(".__main__"):
        return []
    tree = ast.parse(source)
    assigned: dict[str, ast.AST | None] = {}
    for node in tree.body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                assigned[target.id] = getattr(node, "value", None)
    found = {
        name
        for name, value in assigned.items()
        if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in CELLS
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= changed_names(function) & assigned.keys()
    return sorted(found)


def changed_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """The names from outside that a function rebinds or changes in place."""
    declared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    own = {
        argument.arg for node in ast.walk(function) if isinstance(node, ast.arguments) for argument in arguments(node)
    }
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    changed: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                changed.add(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                changed.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in MUTATORS:
                changed.add(name)
    return declared | (changed - own)


def arguments(node: ast.arguments) -> list[ast.arg]:
    more = [each for each in (node.vararg, node.kwarg) if each is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *more]


def crash_point_breaches(source: str, module: str) -> list[str]:
    """Points that no crash test can name: `reach` with a text that `faults.POINTS` does not have."""
    breaches = []
    for node in running_nodes(source) if "reach" in source else ():
        if isinstance(node, ast.Call) and dotted(node.func) in ("reach", "faults.reach"):
            point = node.args[0] if node.args else None
            if not isinstance(point, ast.Constant):
                breaches.append(f"line {node.lineno}: a crash point is a text, so that a search finds it")
            elif point.value not in POINTS:
                breaches.append(f"line {node.lineno}: {point.value!r} is not among faults.POINTS")
    return breaches


def map_breaches(folder: dict[str, str]) -> list[str]:
    """What a package's ``__init__`` does not name of the files beside it. From file or folder name to text."""
    text = ast.get_docstring(ast.parse(folder["__init__"])) or ""
    words = set(re.findall(r"\w+", text))
    return sorted(name for name in folder if name not in ("__init__", "__main__") and name not in words)


# ---- the rules, on this repository ----


def texts() -> list[Path]:
    """Everything a reader of the repository reads, but this file, which must spell out what it forbids."""
    found = [path for pattern in ("*.md", "Makefile", "*.toml", ".ci/*", "scripts/*") for path in ROOT.glob(pattern)]
    for folder in ("src", "docs", "benchmarks", "experiments", "examples", "tests"):
        for pattern in ("*.py", "*.md", "*.html", "*.js", "*.css", "*.sh"):
            found += (ROOT / folder).rglob(pattern)
    return sorted(path for path in found if path.is_file() and path != Path(__file__).resolve())


def modules() -> list[tuple[Path, str]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        found.append((path, ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)))
    return found


def complaints(found: list[tuple[Path, list[str]]]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}: {breach}" for path, breaches in found for breach in breaches)


@pytest.mark.parametrize(
    "rule",
    [layering_breaches, pyspark_breaches, purity_breaches, hash_breaches, length_breaches, crash_point_breaches],
)
def test_the_package_keeps_the_rule(rule) -> None:
    assert modules(), "nothing to check"
    broken = complaints([(path, rule(path.read_text(encoding="utf-8"), module)) for path, module in modules()])
    assert not broken, f"\n{broken}"


# What breaks a rule today and is to go. A name that no longer breaks it must leave this list: it only shrinks.
EXCEPTIONS: dict[str, set[str]] = {
    "cycles": set(),
    "classes": set(),
    "files": set(),
    # The epoch that runs in this thread, a context variable: operators ask it for the time and count bad input there.
    "state": {"anabranch.operators.epoch_context._running"},
    "maps": set(),
}


RULES = {
    "cycles": "these folders import each other",
    "classes": "a public class of this name is there twice",
    "files": "a file of this name is there twice",
    "state": "functions of a pure module change it",
    "maps": "the __init__ of this package does not name every file beside it",
}


@functools.cache
def sources() -> dict[str, str]:
    return {module: path.read_text(encoding="utf-8") for path, module in modules()}


@functools.cache
def found_by_rule(rule: str) -> set[str]:
    """What breaks a rule of the house as a whole, before exceptions."""
    if rule == "cycles":
        return set(cycle_breaches(sources()))
    if rule == "classes":
        return set(repeated_class_breaches(sources()))
    if rule == "files":
        return set(repeated_file_breaches(sources()))
    if rule == "state":
        return {f"{name}.{each}" for name, source in sources().items() for each in module_state_breaches(source, name)}
    folders: dict[str, dict[str, str]] = {}
    for module, source in sources().items():
        package, _, name = module.rpartition(".")
        folders.setdefault(package, {})[name] = source
    for package in list(folders):
        parent, _, name = package.rpartition(".")
        if parent in folders:
            folders[parent].setdefault(name, "")
    assert all("__init__" in folder for folder in folders.values()), "a folder is no package"
    return {package for package, folder in folders.items() if map_breaches(folder)}


@pytest.mark.parametrize("rule", EXCEPTIONS)
def test_the_house_keeps_the_rule_but_for_known_exceptions(rule: str) -> None:
    new = found_by_rule(rule) - EXCEPTIONS[rule]
    assert not new, f"{RULES[rule]}: {sorted(new)}"


@pytest.mark.parametrize("rule", EXCEPTIONS)
def test_an_exception_that_is_none_any_more_leaves_the_list(rule: str) -> None:
    gone = EXCEPTIONS[rule] - found_by_rule(rule)
    assert not gone, f"good: take them out of EXCEPTIONS[{rule!r}] in tests/test_tidy.py: {sorted(gone)}"


def test_every_crash_point_is_reached_somewhere() -> None:
    reached = {
        node.args[0].value
        for source in sources().values()
        if "reach" in source
        for node in running_nodes(source)
        if isinstance(node, ast.Call) and dotted(node.func) in ("reach", "faults.reach")
        if isinstance(node.args[0], ast.Constant)
    }
    assert reached == set(POINTS)


def test_tests_import_what_they_share_by_its_whole_name() -> None:
    tests = [(path, path.relative_to(ROOT).with_suffix("")) for path in sorted((ROOT / "tests").rglob("*.py"))]
    broken = complaints(
        [(path, shared_import_breaches(path.read_text(encoding="utf-8"), ".".join(name.parts))) for path, name in tests]
    )
    assert not broken, f"\n{broken}"


def test_nothing_is_left_unfinished() -> None:
    broken = complaints([(path, unfinished_breaches(path.read_text(encoding="utf-8"))) for path in texts()])
    assert not broken, f"\n{broken}"


def forgotten_amounts(makefile: str, tests: dict[str, str]) -> list[str]:
    """Amounts of random cases that tests take from the environment and that the nightly run does not raise."""
    nightly = makefile.partition("test-nightly:")[2].partition("\n\n")[0].replace("\\\n", " ")
    raised = {
        (amount, test)
        for line in nightly.splitlines()
        for amount in re.findall(r"(ANABRANCH_\w+)=", line)
        for test in re.findall(r"tests/\S+\.py", line)
    }
    wanted = {(amount, test) for test, text in tests.items() for amount in re.findall(r"ANABRANCH_[A-Z_]+", text)}
    return [f"{test}: {amount}" for amount, test in sorted(wanted - raised)]


def test_the_nightly_run_raises_every_amount() -> None:
    tests = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    tests = {path: text for path, text in tests.items() if path != "tests/test_tidy.py"}
    assert forgotten_amounts((ROOT / "Makefile").read_text(), tests) == []


def test_an_amount_that_the_nightly_run_forgets_is_found() -> None:
    makefile = (
        "test-nightly: x\n\tANABRANCH_A=5 pytest \\\n\t\ttests/test_a.py\n\nsoak:\n\tANABRANCH_B=1 tests/test_b.py\n"
    )
    tests = {"tests/test_a.py": 'environ["ANABRANCH_A"]', "tests/test_b.py": "ANABRANCH_B ANABRANCH_A"}
    assert forgotten_amounts(makefile, tests) == ["tests/test_b.py: ANABRANCH_A", "tests/test_b.py: ANABRANCH_B"]


def test_no_test_replaces_the_clock_of_the_process() -> None:
    broken = complaints([(path, shared_clock_breaches(path.read_text(encoding="utf-8"))) for path in texts()])
    assert not broken, f"\n{broken}"


def test_every_file_that_a_text_names_is_there() -> None:
    broken = complaints([(path, dead_path_breaches(path.read_text(encoding="utf-8"))) for path in texts()])
    assert not broken, f"\n{broken}"


def test_nothing_names_a_path_of_the_workplace() -> None:
    tests = ROOT / "tests"
    broken = complaints(
        [
            (path, workplace_breaches(path.read_text(encoding="utf-8"), may_skip=tests in path.parents))
            for path in texts()
        ]
    )
    assert not broken, f"\n{broken}"


def test_pure_layers_reach_nothing_impure_of_ours() -> None:
    for layer in PURE - {"papers"}:
        assert MAY_IMPORT[layer] <= PURE | {"errors", "faults"}, layer


# ---- the rules find what they are for ----


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("anabranch.engine.worker.packets", "from anabranch.spark import session"),
        ("anabranch.engine.worker.packets", "import anabranch.api.stream"),
        ("anabranch.engine.worker.packets", "from anabranch import spark"),
        ("anabranch.engine.worker.packets", "from anabranch import agg"),
        ("anabranch.engine.worker.packets", "import anabranch"),
        ("anabranch.operators.joins", "from ..api import stream"),
        ("anabranch.operators.joins", "from .. import spark"),
        ("anabranch.operators.__init__", "from ..state import store"),
        ("anabranch.compiler.inner.deep", "from ...api import stream"),
        ("anabranch.engine.worker.packets", "def late():\n    from anabranch.spark import session"),
        ("anabranch.control.elastic", "from anabranch.papers.machine import world"),
        ("anabranch.state.changelog", "from anabranch.spark import sinks"),
        ("anabranch.engine.driver.runner", "from anabranch.api.stream import Stream"),
        ("anabranch.errors", "from anabranch.engine import packet"),
        ("anabranch.api.stream", "from anabranch import cli"),
        ("anabranch.helpers", ""),
        ("anabranch.papers.machine.world", "from anabranch.papers.machine.swarm.__main__ import main"),
        ("anabranch.papers.machine.world", "from anabranch.papers.machine.swarm import __main__"),
        ("anabranch.sim.hosts", "from anabranch.papers.machine import world"),
        ("anabranch.papers.machine.world", "from anabranch.spark import session"),
        ("anabranch.papers.machine.world", "from anabranch.api.stream import Stream"),
        ("anabranch.compiler.layout.plan_data", "from anabranch.papers.machine.description import Region"),
    ],
)
def test_an_import_from_a_layer_above_is_found(module: str, source: str) -> None:
    assert layering_breaches(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("anabranch.engine.worker.packets", "from anabranch.errors import AnabranchError\nfrom . import packet"),
        ("anabranch.engine.worker.packets", "from anabranch.program.hashing import stable_hash"),
        ("anabranch.engine.worker.packets", "if TYPE_CHECKING:\n    from anabranch.api import Stream"),
        ("anabranch.engine.worker.packets", "import numpy as np\nimport anabranchlike"),
        ("anabranch.papers.machine.world", "from anabranch.control import elastic\nfrom anabranch.state import store"),
        ("anabranch.api.stream", "from anabranch.spark import session\nfrom ..compiler import graph"),
        ("anabranch.engine.driver.runner", "from anabranch.state import store\nfrom ..operators import joins"),
        ("anabranch.__init__", "from anabranch.api import session\nfrom .testing import tester"),
        ("anabranch.cli", "import anabranch"),
    ],
)
def test_an_import_from_below_is_allowed(module: str, source: str) -> None:
    assert layering_breaches(source, module) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pyspark",
        "from pyspark.sql import SparkSession",
        "def late():\n    import pyspark.sql.functions as F",
        "from py4j.java_gateway import JavaGateway",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark",
        "if not TYPE_CHECKING:\n    import pyspark",
    ],
)
def test_pyspark_outside_of_spark_is_found(source: str) -> None:
    assert pyspark_breaches(source, "anabranch.api.stream")
    assert pyspark_breaches(source, "anabranch.spark.spark_session") == []


def test_pyspark_for_the_type_checker_is_allowed() -> None:
    for condition in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        source = f"if {condition}:\n    from pyspark.sql import DataFrame"
        assert pyspark_breaches(source, "anabranch.api.stream") == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import os.path",
        "import random",
        "from random import shuffle",
        "from io import FileIO",
        "from pathlib import Path",
        "from uuid import uuid4",
        "from uuid import uuid4\nrefused = {uuid4: 'draws a random number'}",
        "import urllib.parse",
        "from urllib import request",
        "import logging",
        "def late():\n    import socket",
        "from datetime import datetime\nstart = datetime.now()",
        "import datetime\nstart = datetime.datetime.utcnow()",
        "from datetime import date\nday = date.today()",
        "import pandas as pd\nstart = pd.Timestamp.now()",
        "data = open('x').read()",
        "print('here')",
        "time = __import__('time')",
        "import sys\nsys.stderr.write('x')",
        "import numpy as np\nx = np.random.rand(3)",
        "import numpy as np\nx = np.random.default_rng()",
        "from random import Random\nx = Random()",
    ],
)
def test_a_clock_or_io_or_global_randomness_in_a_pure_layer_is_found(source: str) -> None:
    for layer in sorted(PURE):
        assert purity_breaches(source, f"anabranch.{layer}.planted"), layer
    assert purity_breaches(source, "anabranch.spark.spark_session") == []


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime, timedelta\nepoch = datetime.fromtimestamp(0) + timedelta(seconds=1)",
        "from random import Random\nx = Random(7)",
        "import numpy as np\nx = np.random.default_rng(7).random(3)",
        "from io import BytesIO",
        "from pathlib import PurePath",
        "from urllib import parse",
        "import sys\nlimit = sys.maxsize",
        "def advance(self):\n    return self.clock.now()",
        "if TYPE_CHECKING:\n    import time",
        "# import time, then print it",
    ],
)
def test_what_only_looks_impure_is_allowed(source: str) -> None:
    assert purity_breaches(source, "anabranch.program.planted") == []


@pytest.mark.parametrize(
    "source",
    [
        "from uuid import uuid4\nkey = uuid4()",
        "from uuid import uuid4\ndraw = uuid4",
        "from uuid import uuid4\nkeys = map(uuid4, [])",
        "from uuid import uuid4\ntable = {'key': uuid4}",
        "from uuid import uuid4 as draw\nkey = draw()",
        "from uuid import getnode",
        "import uuid",
        "from time import monotonic",
    ],
)
def test_a_function_to_be_recognised_may_only_be_a_key_of_the_table_it_is_for(source: str) -> None:
    module, _ = next(iter(RECOGNISED))
    assert purity_breaches("from uuid import uuid4\nrefused = {uuid4: 'draws a random number'}", module) == []
    assert purity_breaches(source, module)


def test_a_command_may_print_and_look_at_the_clock() -> None:
    assert purity_breaches("import time\nprint(time.time())", "anabranch.papers.machine.swarm.__main__") == []
    assert purity_breaches("import time", "anabranch.papers.machine.swarm.trial")


def test_hash_is_found_but_not_in_a_dunder_hash() -> None:
    assert hash_breaches("def route(key):\n    return hash(key) % 8", "anabranch.partitioning.planted")
    assert hash_breaches("def __hash__(self):\n    return hash(self.key)", "anabranch.program.planted") == []


def test_a_long_file_is_found() -> None:
    assert length_breaches("x = 1\n" * (FILE_LINES_MAX + 1), "anabranch.program.planted")
    assert length_breaches("x = 1\n" * FILE_LINES_MAX, "anabranch.program.planted") == []


def test_unfinished_work_is_found() -> None:
    assert unfinished_breaches("x = 1\n# TODO: more") == ["line 2: finish it, or file an issue"]
    assert unfinished_breaches("# FIXME")
    assert unfinished_breaches("mastodons, METHODOLOGY") == []


def test_a_path_of_the_workplace_is_found() -> None:
    assert workplace_breaches("see /work/notes", may_skip=False)
    assert workplace_breaches("see `../shared/DESIGN.md`", may_skip=False)
    assert workplace_breaches("data = '../shared/x'", may_skip=True)
    assert workplace_breaches("pytest.skip('no data')\ndata = '../shared/x'", may_skip=True) == []
    assert workplace_breaches("pytest.skip('no data')\ndata = '../shared/x'", may_skip=False)
    assert workplace_breaches("spark/work/dir, the network/", may_skip=False) == []


def test_a_file_that_is_named_and_not_there_is_found() -> None:
    assert dead_path_breaches("see `docs/nowhere.md`") == ["line 1: there is no docs/nowhere.md"]
    assert dead_path_breaches("see `tests/conftest.py`, other/docs/nowhere.md and benchmarks/NAME.py") == []
    assert dead_path_breaches("`engine/nowhere.py`") and dead_path_breaches("`engine.nowhere`")
    assert dead_path_breaches("`partitioning.tally.Tally`") and dead_path_breaches("`engine.reports.Nothing`")
    alive = "`engine/reports.py`, `partitioning.counting.tally.Tally`, `engine.worker` and `spark.cores.max`"
    assert dead_path_breaches(alive) == []


def test_a_replaced_clock_of_the_process_is_found() -> None:
    assert shared_clock_breaches('monkeypatch.setattr(time, "sleep", print)')
    assert shared_clock_breaches('monkeypatch.setattr("time.sleep", print)')
    assert shared_clock_breaches('monkeypatch.setattr(measuring, "time", clock)') == []


def test_another_way_to_import_what_tests_share_is_found() -> None:
    for source in ("from programs import exact", "import graphs", "from faults.test_schedules import check_state"):
        assert shared_import_breaches(source, "tests.spark.planted"), source
    allowed = "from tests.programs import exact\nfrom benchmarks import state\nimport anabranch.state"
    assert shared_import_breaches(allowed, "tests.spark.planted") == []


def test_folders_that_import_each_other_are_found() -> None:
    planted = {
        "anabranch.state.__init__": "",
        "anabranch.state.disk.file": "from anabranch.state.memory import table",
        "anabranch.state.memory.table": "def late():\n    from anabranch.state.names.words import one",
        "anabranch.state.names.words": "from ..disk import file",
        "anabranch.state.aside.other": "from anabranch.state.disk.file import x\nfrom anabranch.errors import y",
    }
    circle = ["anabranch.state.disk", "anabranch.state.memory", "anabranch.state.names"]
    assert cycle_breaches(planted) == circle
    planted["anabranch.state.names.words"] = "if TYPE_CHECKING:\n    from ..disk import file"
    assert cycle_breaches(planted) == []
    planted["anabranch.state.door"] = "from anabranch.state.disk.file import x"
    assert cycle_breaches(planted) == []
    planted["anabranch.state.memory.table"] = "from anabranch.state.door import x"
    assert cycle_breaches(planted) == ["anabranch.state.disk", "anabranch.state.door", "anabranch.state.memory"]


def test_a_name_that_is_there_twice_is_found() -> None:
    planted = {
        "anabranch.state.slots": "class Slots: ...\nclass _Own: ...",
        "anabranch.engine.slots": "class Slots: ...\nclass _Own: ...",
        "anabranch.engine.__init__": "",
        "anabranch.state.__init__": "class Other: ...",
    }
    assert repeated_class_breaches(planted) == ["Slots"]
    assert repeated_file_breaches(planted) == ["slots"]


@pytest.mark.parametrize(
    "source",
    [
        "_now = 0\ndef set_now(now):\n    global _now\n    _now = now",
        "seen = {}\ndef see(key):\n    seen[key] = 1",
        "seen = []\ndef see(key):\n    seen.append(key)",
        "seen: set = set()\nclass Eye:\n    def see(self, key):\n        seen.add(key)",
        "held = Holder()\ndef hold(x):\n    held.x = x",
        "held = {}\ndef drop(x):\n    del held[x]",
        "held = {}\ndrop = lambda x: held.pop(x)",
        "from contextvars import ContextVar\nnow = ContextVar('now')",
        "import threading\nnow = threading.local()",
        "import itertools\nnumbers = itertools.count()",
    ],
)
def test_state_of_a_pure_module_is_found(source: str) -> None:
    assert module_state_breaches(source, "anabranch.operators.planted")
    assert module_state_breaches(source, "anabranch.spark.planted") == []


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {1: 2}\ndef look(key):\n    return TABLE[key]",
        "TABLE = {}\nTABLE[1] = 2\nTABLE.update({3: 4})",
        "seen = []\ndef see(seen):\n    seen.append(1)",
        "seen = []\ndef see():\n    seen = []\n    seen.append(1)",
        "class Eye:\n    def see(self, key):\n        self.seen.append(key)",
    ],
)
def test_tables_and_local_names_are_no_state(source: str) -> None:
    assert module_state_breaches(source, "anabranch.operators.planted") == []


def test_a_crash_point_that_no_test_can_name_is_found() -> None:
    assert crash_point_breaches(f"reach({POINTS[0]!r}, epoch=1)", "anabranch.engine.planted") == []
    for source in ("reach('no such point')", "faults.reach('no such point', epoch=1)", "reach(point)", "reach()"):
        assert crash_point_breaches(source, "anabranch.engine.planted"), source


def test_a_file_that_the_map_of_its_folder_does_not_name_is_found() -> None:
    folder = {"__init__": '"""Stores.\n\n``disk`` is slow."""', "disk": "", "memory": "", "__main__": ""}
    assert map_breaches(folder) == ["memory"]
    assert map_breaches({"__init__": "", "disk": ""}) == ["disk"]
