"""Operators with a planted fault: a safe operator, into which hidden state is put.

Each mutation makes what is emitted depend on something that outlives the call, by one of many ways. A
mutant is made from source text, compiled with the names of the original, and registered with `linecache`,
so that the compiler reads it like any other code.
"""

from __future__ import annotations

import ast
import collections
import copy
import functools
import heapq
import inspect
import itertools
import json
import linecache
import operator
import random
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

# Expressions that give another value on every call, using names from `hidden_names`.
SNEAKY = (
    "next(_count)",
    "_list.append(1) or len(_list)",
    "_push(1) or len(_list)",
    "list.append(_list, 1) or len(_list)",
    "operator.setitem(_dict, 'n', _dict.get('n', 0) + 1) or _dict['n']",
    "_dict.update(n=_dict.get('n', 0) + 1) or _dict['n']",
    "_dict.setdefault('l', []).append(1) or len(_dict['l'])",
    "_default['n'].append(1) or len(_default['n'])",
    "_counter.update('x') or _counter['x']",
    "_deque.rotate(1) or _deque[0]",
    "(_box.__setattr__('n', _box.n + 1), _box.n)[1]",
    "(setattr(_box, 'n', _box.n + 1), _box.n)[1]",
    "(vars(_box).update(n=_box.n + 1), _box.n)[1]",
    "(_box.__dict__.update(n=_box.n + 1), _box.n)[1]",
    "(type(_box).tick(_box), _box.n)[1]",
    "_box.tick()",
    "_box.ticking",
    "_box + 1",
    "_box(1)",
    "_box[0]",
    "len(_box)",
    "int(str(_box))",
    "[x for x in _box][0]",
    "sorted([1], key=lambda x: _list.append(x) or 0) and len(_list)",
    "list(map(_list.append, [1])) and len(_list)",
    "functools.reduce(lambda a, b: a.append(b) or a, [1], _list) and len(_list)",
    "functools.partial(_list.append, 1)() or len(_list)",
    "max(_list, _list, key=lambda l: l.append(1) or 0) and len(_list)",
    "(lambda l=_list: l.append(1) or len(l))()",
    "[l.append(1) or len(l) for l in [_list]][0]",
    "(lambda *a: a[0].append(1) or len(a[0]))(_list)",
    "(lambda **k: k['l'].append(1) or len(k['l']))(l=_list)",
    "{'l': _list}['l'].append(1) or len(_list)",
    "(_list, 1)[0].append(1) or len(_list)",
    "(_list if t.id > 2 else _list).append(1) or len(_list)",
    "next(iter([_list])).append(1) or len(_list)",
    "_cached('x').append(1) or len(_cached('x'))",
    "_generator.send(None)",
    "next(_generator)",
    "random.random()",
    "_random.randint(0, 10**9)",
    "globals()['_list'].append(1) or len(_list)",
    "eval('_list.append(1)') or len(_list)",
    "_helper(_list)",
    "_indirect(lambda: _list.append(1)) or len(_list)",
    "collections.deque(map(_list.append, [1])) and len(_list)",
    "_set.add(len(_set)) or len(_set)",
    "_slots.bump()",
    "operator.methodcaller('append', 1)(_list) or len(_list)",
    "getattr(_list, 'append')(1) or len(_list)",
    "getattr(_box, 'tick')()",
    "copy.copy([_list])[0].append(1) or len(_list)",
    "(lambda: (yield))() and next(_count)",
    "[*itertools.islice(_count, 1)][0]",
    "sum(itertools.islice(_count, 1))",
    "dict([('l', _list)])['l'].append(1) or len(_list)",
    "list(zip([_list]))[0][0].append(1) or len(_list)",
    "min([_list]).append(1) or len(_list)",
    "functools.wraps(_helper)(_helper)(_list)",
    "(l := _list).append(1) or len(l)",
    "_list.__iadd__([1]) and len(_list)",
    "operator.iadd(_list, [1]) and len(_list)",
    "re.sub('x', lambda m: _list.append(1) or '', 'x') or len(_list)",
    "_method(1) or len(_list)",
    "_class_method()",
    "max(*_boxes).append(1) or len(_list)",
    "min(*[b for b in _boxes]).append(1) or len(_list)",
    "list(*_boxes2)[0].append(1) or len(_list)",
    "heapq.heappush(*_boxes3) or len(_list)",
    "{**{'l': _list}}['l'].append(1) or len(_list)",
    "[*_boxes][0].append(1) or len(_list)",
    "dict.fromkeys('x', _list)['x'].append(1) or len(_list)",
    "list(itertools.chain(_boxes))[0].append(1) or len(_list)",
    "list(itertools.repeat(_list, 1))[0].append(1) or len(_list)",
    "next(itertools.cycle([_list])).append(1) or len(_list)",
    "sorted(_boxes, key=len)[0].append(1) or len(_list)",
    "list(filter(None, [[0], _list]))[-1].append(1) or len(_list)",
    "(_list or _list).append(1) or len(_list)",
    "collections.deque([_list]).pop().append(1) or len(_list)",
    "collections.OrderedDict(x=_list)['x'].append(1) or len(_list)",
    "[[_list]][0][0].append(1) or len(_list)",
    "([_list] * 2)[1].append(1) or len(_list)",
    "([] + [_list])[0].append(1) or len(_list)",
    "dict(x=_list).get('x').append(1) or len(_list)",
    "dict(x=_list).pop('x').append(1) or len(_list)",
    "[v.append(1) or len(v) for k, v in {'a': _list}.items()][0]",
    "[v.append(1) or len(v) for i, v in enumerate([_list])][0]",
    "[v.append(1) or len(v) for v in reversed([_list])][0]",
    "operator.getitem([_list], 0).append(1) or len(_list)",
    "operator.itemgetter(0)([_list]).append(1) or len(_list)",
    "(lambda x: x)(_list).append(1) or len(_list)",
    "(lambda: _list)().append(1) or len(_list)",
    "functools.reduce(lambda a, b: b, [_list]).append(1) or len(_list)",
    "heapq.nlargest(1, [_list])[0].append(1) or len(_list)",
    "[x for xs in [[_list]] for x in xs][0].append(1) or len(_list)",
    "list(map(lambda x: x, [_list]))[0].append(1) or len(_list)",
    "(_list, )[-1:][0].append(1) or len(_list)",
    "list(itertools.starmap(lambda x: x.append(1), [(_list,)])) and len(_list)",
    "list(itertools.accumulate([1], lambda a, b: a, initial=_list))[0].append(1) or len(_list)",
    "[g.append(1) for k, gs in itertools.groupby([_list]) for g in gs] and len(_list)",
    "list(itertools.product([_list]))[0][0].append(1) or len(_list)",
    "list(map(lambda a, b: a.append(1), *[[_list], [1]])) and len(_list)",
    "list(map(lambda a, b: a.append(1), *_pairs)) and len(_list)",
    "json.loads('{}', object_hook=lambda d: _list.append(1)) or len(_list)",
    "json.loads('{}', object_pairs_hook=lambda d, l=_list: l.append(1)) or len(_list)",
    "list(itertools.starmap(_starred, [(_list, 1)])) and len(_list)",
    "functools.reduce(lambda *a: a[0].append(1) or a[0], [1], _list) and len(_list)",
    "list(itertools.zip_longest([], [1], fillvalue=_list))[0][0].append(1) or len(_list)",
    "next(iter([]), _list).append(1) or len(_list)",
    "max([], default=_list).append(1) or len(_list)",
)

STATEMENTS = (
    "for _x in _count:\n    break\n_n = _x",
    "_l = _list\n_l += [1]\n_n = len(_list)",
    "_a, *_b = _list, 1\n_a.append(1)\n_n = len(_list)",
    "def _inner():\n    _late.append(1)\n_late = _list\n_inner()\n_n = len(_list)",
    "_boxes = []\n_lazy = (b for b in _boxes)\n_boxes.append(_list)\nfor _b in _lazy:\n    "
    "_b.append(1)\n_n = len(_list)",
    "with _context:\n    pass\n_n = _context.n",
    "try:\n    raise ValueError(_list)\nexcept ValueError as _e:\n    _e.args[0].append(1)\n_n = len(_list)",
    "match [_list]:\n    case [_m]:\n        _m.append(1)\n_n = len(_list)",
    "_d = {}\n_d['x'] = _list\nfor _v in _d.values():\n    _v.append(1)\n_n = len(_list)",
    "global _number\n_number += 1\n_n = _number",
    "_o = _Holder(_list)\n_o.held.append(1)\n_n = len(_list)",
    "_w = [[], _list]\nwhile _w:\n    _last = _w.pop()\n    _last.append(1)\n_n = len(_list)",
    "_list[len(_list):] = [1]\n_n = len(_list)",
    "del _long[0]\n_n = len(_long)",
    "_box.n += 1\n_n = _box.n",
    "type(_box).shared += 1\n_n = _box.shared",
    "_helper.n = getattr(_helper, 'n', 0) + 1\n_n = _helper.n",
    "import random as _r\n_n = _r.random()",
    "_n = _dict['n'] = _dict.get('n', 0) + 1",
    "[_list.append(1) for _ in range(1)]\n_n = len(_list)",
    "assert _list.append(1) is None\n_n = len(_list)",
    "if _list.append(1):\n    pass\n_n = len(_list)",
    "_n = f'{_list.append(1)}{len(_list)}'",
)


class _Box:
    shared = 0

    def __init__(self) -> None:
        self.n = 0

    def tick(self) -> int:
        self.n += 1
        return self.n

    @property
    def ticking(self) -> int:
        return self.tick()

    def __add__(self, other: Any) -> int:
        return self.tick()

    def __call__(self, other: Any) -> int:
        return self.tick()

    def __getitem__(self, key: Any) -> int:
        return self.tick()

    def __len__(self) -> int:
        return self.tick()

    def __str__(self) -> str:
        return str(self.tick())

    def __iter__(self) -> Any:
        return iter([self.tick()])

    @classmethod
    def bump(cls) -> int:
        cls.shared += 1
        return cls.shared


class _Context:
    n = 0

    def __enter__(self) -> _Context:
        self.n += 1
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class _Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


class _Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def bump(self) -> int:
        self.n += 1
        return self.n


def _helper(target: list[int]) -> int:
    target.append(1)
    return len(target)


def _indirect(function: Any) -> Any:
    return function()


@functools.lru_cache
def _cached(name: str) -> list[int]:
    return []


def _generate() -> Iterator[int]:
    yield from itertools.count()


def hidden_names() -> dict[str, Any]:
    """The names the mutations use, all new."""
    numbers: list[int] = []
    box = _Box()
    return {
        "_count": itertools.count(),
        "_list": numbers,
        "_boxes": [numbers, numbers],
        "_boxes2": [[numbers]],
        "_boxes3": [numbers, 1],
        "heapq": heapq,
        "json": json,
        "_pairs": [[numbers], [1]],
        "_starred": lambda *a: a[0].append(1),
        "_push": numbers.append,
        "_method": types.MethodType(lambda self, x: self.append(x), numbers),
        "_dict": {},
        "_default": collections.defaultdict(list),
        "_counter": collections.Counter(),
        "_deque": collections.deque(range(1000)),
        "_box": box,
        "_class_method": _Box.bump,
        "_cached": _cached,
        "_generator": _generate(),
        "_random": random.Random(3),
        "_helper": _helper,
        "_indirect": _indirect,
        "_set": set(),
        "_slots": _Slots(),
        "_context": _Context(),
        "_Holder": _Holder,
        "_number": 0,
        "_long": list(range(10_000)),
        "random": random,
        "operator": operator,
        "functools": functools,
        "collections": collections,
        "itertools": itertools,
        "copy": copy,
        "re": re,
    }


def source_of(function: types.FunctionType) -> ast.FunctionDef | None:
    """The tree of a plain function, if it can be compiled by itself."""
    if function.__closure__ or function.__name__ == "<lambda>":
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        return None
    found.decorator_list = []
    return found


class _Emit(ast.NodeTransformer):
    """Every emitted value becomes a pair with the hidden expression."""

    def __init__(self, hidden: str) -> None:
        self.hidden = hidden

    def _pair(self, value: ast.expr | None) -> ast.expr:
        hidden = ast.parse(self.hidden, mode="eval").body
        return ast.Tuple([value or ast.Constant(None), hidden], ast.Load())

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        return ast.Yield(self._pair(node.value))

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.Return(self._pair(node.value)) if node.value is not None else node


_serial = itertools.count()


def text_of_mutant(function: types.FunctionType, expression: str = "", statement: str = "") -> str | None:
    """The source of the function with a hidden expression in what it emits, or with a statement that makes one."""
    tree = source_of(function)
    if tree is None:
        return None
    mutator = _Emit(expression or "_n")
    tree.body = [mutator.visit(each) for each in tree.body]
    if statement:
        start = 1 if isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant) else 0
        tree.body[start:start] = ast.parse(statement).body
    return ast.unparse(ast.fix_missing_locations(ast.Module([tree], [])))


def mutant(function: types.FunctionType, expression: str = "", statement: str = "") -> types.FunctionType | None:
    """The function with a hidden expression in what it emits, or with a statement that makes one."""
    text = text_of_mutant(function, expression, statement)
    if text is None:
        return None
    name = f"<mutant {next(_serial)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {**function.__globals__, **hidden_names()}
    space["__name__"] = "__mutant__"
    exec(compile(text, name, "exec", dont_inherit=True), space)
    return space[function.__name__]


def takes_emit(function: types.FunctionType) -> bool:
    """Whether a function emits by a callback."""
    return function.__code__.co_varnames[1 : function.__code__.co_argcount] == ("emit",)
