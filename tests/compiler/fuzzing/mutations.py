"""Changes of an operator's code that leave what it does: other ways to the same objects, other places for its code.

A mutation takes the tree of a module and changes it, or says that it found nothing to change. They compose: what one
made, the next may change again. The operator is the last class or function of the module; names that mutations bring
along begin with `_`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import random
import re
from collections.abc import Callable, Iterator

from tests.compiler.fuzzing.detours import DETOURS, WRAPPINGS
from tests.compiler.fuzzing.trials import Program


class _Parents(ast.NodeVisitor):
    """Which node each is in."""

    def __init__(self, tree: ast.AST) -> None:
        self.of: dict[int, tuple[ast.AST, str, int | None]] = {}
        self.visit(tree)

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            for at, each in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(each, ast.AST):
                    self.of[id(each)] = (node, name, at)
                    self.visit(each)

    def replace(self, node: ast.AST, by: ast.AST) -> None:
        parent, name, at = self.of[id(node)]
        if at is None:
            setattr(parent, name, by)
        else:
            getattr(parent, name)[at] = by

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while id(node) in self.of:
            node = self.of[id(node)][0]
            yield node


def _bodies(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions that take tuples, and the methods beside them; not __init__."""
    target = tree.body[-1]
    if isinstance(target, ast.FunctionDef):
        inner = [each for each in target.body if isinstance(each, ast.FunctionDef)]
        return inner or [target]
    if not isinstance(target, ast.ClassDef):
        return []
    methods = [each for each in target.body if isinstance(each, ast.FunctionDef)]
    return [each for each in methods if not each.name.startswith("__") or each.name == "__call__"]


def _ways(tree: ast.Module) -> list[ast.expr]:
    """Expressions that may lead to something that is changed: what is indexed or has its attribute taken."""
    found: list[ast.expr] = []
    for body in _bodies(tree):
        for node in ast.walk(body):
            if not isinstance(node, (ast.Attribute, ast.Subscript)):
                continue
            is_name = isinstance(node.value, ast.Name) and node.value.id not in _MODULES
            if is_name or isinstance(node.value, (ast.Attribute, ast.Subscript, ast.Call)):
                found.append(node.value)
    return found


_MODULES = frozenset(
    {"abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime", "enum", "functools"}
    | {"heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "types", "np", "ab"}
    | {"super"}
)


def _filled(template: str, node: ast.expr) -> ast.Module:
    class Fill(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            return copy.deepcopy(node) if name.id == "X" else name

    tree = ast.parse(template)
    return Fill().visit(tree)


def wrap(tree: ast.Module, choice: random.Random) -> bool:
    """An expression becomes another that gives the same object."""
    ways = _ways(tree)
    if not ways:
        return False
    node = choice.choice(ways)
    template = choice.choice(WRAPPINGS).replace("_stack(", "_same(*")
    if "t" not in _names(node) and ("(X if t" in template or "(t and" in template):
        template = "_same(X)"
    made = _filled(template, node).body[0]
    assert isinstance(made, ast.Expr)
    _Parents(tree).replace(node, made.value)
    return True


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def detour(tree: ast.Module, choice: random.Random) -> bool:
    """An expression is taken from a variable that statements before it have filled."""
    parents = _Parents(tree)
    ways = _ways(tree)
    choice.shuffle(ways)
    for node in ways:
        statement = node
        above = [node, *parents.above(node)]
        if any(isinstance(each, (ast.Lambda, ast.comprehension, ast.GeneratorExp, ast.ListComp)) for each in above):
            continue
        statement = next(each for each in above if isinstance(each, ast.stmt))
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Delete)):
            continue
        owner, name, at = parents.of[id(statement)]
        block = getattr(owner, name)
        if at is None or not isinstance(block, list):
            continue
        number = choice.randrange(10**6)
        template = choice.choice(DETOURS)
        if "t" not in {each.arg for each in ast.walk(owner) if isinstance(each, ast.arg)} and "bool(t)" in template:
            template = "_got = X"
        filled = _filled(template, node)
        for each in ast.walk(filled):  # names of its own: two detours must not meet
            if isinstance(each, ast.Name) and each.id.startswith("_") and each.id[1:] in _OWN:
                each.id += str(number)
            elif isinstance(each, (ast.FunctionDef, ast.ClassDef)):
                each.name += str(number)
            elif isinstance(each, (ast.Nonlocal, ast.Global)):
                each.names = [f"{one}{number}" for one in each.names]
            elif (isinstance(each, ast.MatchAs) and each.name) or (isinstance(each, ast.ExceptHandler) and each.name):
                each.name += str(number)
        parents.replace(node, ast.Name(f"_got{number}", ast.Load()))
        block[at:at] = filled.body
        return True
    return False


_OWN = frozenset(
    {"got", "more", "other", "n", "error", "loaded", "deep", "box", "list", "dict", "queue", "heap", "array", "inner"}
    | {"later", "sent", "lazy", "late", "Local", "made", "a", "b"}
)


def call_otherwise(tree: ast.Module, choice: random.Random) -> bool:
    """A method is called through its name, a variable, a partial or a function of the operator module."""
    calls = [
        node
        for body in _bodies(tree)
        for node in ast.walk(body)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id in _MODULES)
        if not any(isinstance(each, ast.Starred) for each in node.args)
    ]
    if not calls:
        return False
    node = choice.choice(calls)
    receiver, name = ast.unparse(node.func.value), node.func.attr
    arguments = ", ".join(ast.unparse(each) for each in node.args)
    comma = ", " if arguments else ""
    text = choice.choice(
        [
            f"getattr({receiver}, {name!r})({arguments})",
            f"(lambda f: f({arguments}))({receiver}.{name})",
            f"functools.partial({receiver}.{name}{comma}{arguments})()",
            f"operator.methodcaller({name!r}{comma}{arguments})({receiver})",
            f"[{receiver}.{name}][0]({arguments})",
            f"{receiver}.{name}(*[{arguments}])",
            f"type({receiver}).{name}({receiver}{comma}{arguments})",
        ]
    )
    _Parents(tree).replace(node, ast.parse(text, mode="eval").body)
    return True


def assign_otherwise(tree: ast.Module, choice: random.Random) -> bool:
    """An item is assigned by a function or a method."""
    found = [
        node
        for body in _bodies(tree)
        for node in ast.walk(body)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and isinstance(_target(node), ast.Subscript)
    ]
    if not found:
        return False
    node = choice.choice(found)
    target = _target(node)
    assert isinstance(target, ast.Subscript)
    if isinstance(target.slice, ast.Slice):
        return False
    owner, index, value = ast.unparse(target.value), ast.unparse(target.slice), ast.unparse(node.value)
    if isinstance(node, ast.AugAssign):
        sign = ast.unparse(node).removeprefix(ast.unparse(target)).split("=")[0].strip()
        value = f"{owner}[{index}] {sign} ({value})"
    text = choice.choice(
        [
            f"operator.setitem({owner}, {index}, {value})",
            f"{owner}.__setitem__({index}, {value})",
            f"{owner}[{index}] = {value}",
            f"{owner}.update({{{index}: {value}}})" if not isinstance(node, ast.AugAssign) else "pass",
        ]
    )
    if text == "pass":
        return False
    _Parents(tree).replace(node, ast.parse(text).body[0])
    return True


def _target(node: ast.Assign | ast.AugAssign) -> ast.expr:
    return node.target if isinstance(node, ast.AugAssign) else node.targets[0]


def into_helper(tree: ast.Module, choice: random.Random) -> bool:
    """The method's body moves to another method, a base class, or a class around it."""
    target = tree.body[-1]
    if not isinstance(target, ast.ClassDef):
        return False
    method = next((each for each in _bodies(tree) if each.name in ("__call__", "process")), None)
    if method is None or len(method.args.args) != 2:
        return False
    way = choice.choice(["method", "base", "super", "property", "static", "mixin"])
    number = choice.randrange(10**6)
    if way in ("method", "static"):
        inner = copy.deepcopy(method)
        inner.name = f"_inner{number}"
        inner.decorator_list = []
        if way == "static":
            inner.decorator_list = [ast.Name("staticmethod", ast.Load())]
        call = f"self._inner{number}(t)" if way == "method" else f"self._inner{number}(self, t)"
        method.args = ast.parse("def f(self, t): pass").body[0].args  # type: ignore[attr-defined]
        is_generator = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(inner))
        method.body = ast.parse(f"{'yield from' if is_generator else 'return'} {call}").body
        target.body.append(inner)
        return True
    if way == "property":
        attributes = [node for node in ast.walk(method) if isinstance(node, ast.Attribute)]
        assigned = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
        names = sorted({node.attr for node in attributes if ast.unparse(node.value) == "self"})
        methods = {each.name for each in target.body if isinstance(each, ast.FunctionDef)}
        names = [name for name in names if name not in assigned | methods]
        if not names:
            return False
        name = choice.choice(names)
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and node.attr == name:
                node.attr = f"by_{name}"
        target.body += ast.parse(f"@property\ndef by_{name}(self):\n    return self.{name}").body
        return True
    # The class becomes the base of another, or of one that calls it by super().
    name, base = target.name, f"{target.name}Base{number}"
    target.name = base
    text = f"class {name}({base}):\n    pass"
    if way == "super":
        is_generator = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(method))
        text = (
            f"class {name}({base}):\n    def {method.name}(self, t):\n        "
            f"{'yield from' if is_generator else 'return'} super().{method.name}(t)"
        )
    elif way == "mixin":
        text = f"class _Mixin{number}:\n    extra = 1\n\nclass {name}(_Mixin{number}, {base}):\n    pass"
    _Rename({name: base}).visit(target)
    tree.body += ast.parse(text).body
    return True


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node


def in_a_block(tree: ast.Module, choice: random.Random) -> bool:
    """A statement stands in a loop, a try, a with or a branch that runs once."""
    bodies = _bodies(tree)
    if not bodies:
        return False
    block = choice.choice(bodies).body
    at = choice.randrange(len(block))
    if isinstance(block[at], (ast.FunctionDef, ast.Global, ast.Nonlocal, ast.ClassDef)):
        return False
    text = choice.choice(
        [
            "for _once in range(1):\n    pass",
            "if True:\n    pass",
            "try:\n    pass\nfinally:\n    _done = 1",
            "with contextlib.suppress(OSError):\n    pass",
            "while True:\n    pass\n    break",
        ]
    )
    made = ast.parse(text).body[0]
    inner: list[ast.stmt] = made.body  # type: ignore[attr-defined]
    inner[0] = block[at]
    block[at] = made
    return True


MUTATIONS: tuple[Callable[[ast.Module, random.Random], bool], ...] = (
    wrap,
    wrap,
    wrap,
    detour,
    detour,
    call_otherwise,
    assign_otherwise,
    into_helper,
    in_a_block,
)


def mutated(program: Program, seed: int, helpers: str) -> Program | None:
    """The program, changed once to four times; None if that is not Python."""
    choice = random.Random(seed)
    tree = ast.parse(program.text)
    done: list[str] = []
    for _ in range(choice.randint(1, 4)):
        mutation = choice.choice(MUTATIONS)
        if mutation(tree, choice):
            done.append(mutation.__name__)
            tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
    if not done:
        return None
    text = helpers + ast.unparse(tree) + "\n"
    try:
        compile(text, "mutated", "exec")
    except SyntaxError:
        return None
    title = f"{program.title}, seed {seed}: {', '.join(done)}"
    # A reason is true, too, if it leads to the detour that was made to what makes the program unsafe.
    names = {each for each in re.findall(r"\b_[A-Za-z]+\d*", ast.unparse(tree)) if not each.startswith("__")}
    names |= {"functools.partial", "operator.methodcaller", "getattr(", "super()"}
    culprits = (*program.culprits, *sorted(names)) if program.culprits else ()
    return dataclasses.replace(program, title=title, text=text, culprits=culprits)
