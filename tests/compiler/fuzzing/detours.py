"""Other ways to one and the same object: expressions that give it, statements behind which a variable has it."""

from __future__ import annotations

#: What the wrappings below need; imports are in `generated.HEAD`.
HELPERS = """
class _Box:
    def __init__(self, held=None):
        self.held = held

    def same(self):
        return self.held

    @property
    def through(self):
        return self.held

    def __getitem__(self, _):
        return self.held


@dataclasses.dataclass
class _Record:
    held: object = None


_Pair = collections.namedtuple("_Pair", "held other")


def _same(held):
    return held


def _given(*all_of, **named):
    return named["held"] if named else all_of[0]


def _walk(held):
    yield held


def _answer(held):
    got = yield None
    yield got


@contextlib.contextmanager
def _within(held):
    yield held


def _stacked(depth, held):
    return held if depth == 0 else _stacked(depth - 1, held)
"""

#: Expressions that are the object `X`, by some way.
WRAPPINGS = (
    "(lambda o: o)(X)",
    "(lambda: X)()",
    "(lambda o=X: o)()",
    "[X][0]",
    "(X,)[0]",
    "(1, X)[-1]",
    "{'k': X}['k']",
    "{1: X}[1]",
    "{'k': X}.get('k')",
    "{'k': X}.pop('k')",
    "{}.setdefault('k', X)",
    "dict(k=X)['k']",
    "{**{'k': X}}['k']",
    "({'a': 1} | {'k': X})['k']",
    "list({'k': X}.values())[0]",
    "[v for _, v in {'k': X}.items()][0]",
    "{'k': X}.popitem()[1]",
    "[*[X]][0]",
    "([X] + [])[0]",
    "([X] * 2)[1]",
    "[[X]][0][0]",
    "[X][:][0]",
    "[X].copy()[0]",
    "[X].pop()",
    "list(reversed([1, X]))[0]",
    "next(iter([X]))",
    "next(_walk(X))",
    "[o for o in [X]][0]",
    "next(o for o in [X])",
    "list(map(lambda o: o, [X]))[0]",
    "list(filter(lambda o: True, [X]))[0]",
    "list(zip([X], [1]))[0][0]",
    "list(enumerate([X]))[0][1]",
    "sum([[X]], [])[0]",
    "max([X], key=lambda o: 0)",
    "sorted([X], key=lambda o: 0)[0]",
    "functools.reduce(lambda a, b: b, [1, X])",
    "functools.partial(_same, X)()",
    "functools.partial(lambda a, b: b, 1)(X)",
    "copy.copy([X])[0]",
    "copy.copy(_Box(X)).held",
    "copy.copy(_Record(X)).held",
    "dataclasses.replace(_Record(1), held=X).held",
    "_Pair(1, 2)._replace(held=X).held",
    "_Pair(X, 1)[0]",
    "_Pair(X, 1).held",
    "_Record(X).held",
    "_Box(X).held",
    "_Box(X).same()",
    "_Box(X).through",
    "_Box(X)[0]",
    "types.SimpleNamespace(held=X).held",
    "_same(X)",
    "_given(X)",
    "_given(held=X)",
    "_given(*[X])",
    "_given(**{'held': X})",
    "_stacked(2, X)",
    "getattr(_Box(X), 'held')",
    "operator.itemgetter(0)([X])",
    "operator.attrgetter('held')(_Box(X))",
    "operator.getitem([X], 0)",
    "operator.concat([X], [])[0]",
    "operator.methodcaller('same')(_Box(X))",
    "itertools.chain([X]).__next__()",
    "next(itertools.chain.from_iterable([[X]]))",
    "next(itertools.repeat(X))",
    "next(itertools.cycle([X]))",
    "list(itertools.islice([X], 1))[0]",
    "list(itertools.product([X]))[0][0]",
    "list(itertools.accumulate([X]))[0]",
    "itertools.tee([X])[0].__next__()",
    "collections.deque([X])[0]",
    "collections.deque([X]).popleft()",
    "collections.OrderedDict(k=X)['k']",
    "collections.ChainMap({'k': X})['k']",
    "np.array([X, None], dtype=object)[0]",
    "json.loads('{}', object_hook=lambda d: X)",
    "statistics.median_low([X])",
    "math.prod([], start=X)",
    "heapq.nsmallest(1, [X], key=lambda o: 0)[0]",
    "(X if t else None)",
    "(t and X)",
    "(_unlikely := X)",
    "[_kept := X][0]",
    "type('_Made', (), {'held': X}).held",
    "_stack([X])",
)
#: Statements behind which the name `_got` is the object `X`.
DETOURS = (
    "_got = X",
    "_got, *_more = [X, 1]",
    "*_more, _got = [1, X]",
    "[_got, _other] = X, 1",
    "for _got in [X]:\n    pass",
    "for _n, _got in enumerate([X]):\n    pass",
    "while True:\n    _got = X\n    break",
    "match [X]:\n    case [_got]:\n        pass",
    "match {'k': X}:\n    case {'k': _got}:\n        pass",
    "match _Pair(X, 1):\n    case _Pair(held=_got):\n        pass",
    "try:\n    raise ValueError(X)\nexcept ValueError as _error:\n    _got = _error.args[0]",
    "try:\n    _got = X\nfinally:\n    pass",
    "with contextlib.nullcontext(X) as _got:\n    pass",
    "with _within(X) as _got:\n    pass",
    "_loaded = json.loads('{}')\n_loaded['k'] = X\n_got = _loaded['k']",
    "_loaded = json.loads('[]')\n_loaded.append(X)\n_got = _loaded[0]",
    "_deep = copy.deepcopy([[]])\n_deep[0].append(X)\n_got = _deep[0][0]",
    "_box = _Box()\n_box.held = X\n_got = _box.held",
    "_box = _Box()\nsetattr(_box, 'held', X)\n_got = _box.held",
    "_box = _Box()\n_other = _box\n_other.held = X\n_got = _box.held",
    "_box = types.SimpleNamespace()\n_box.held = X\n_got = _box.held",
    "_list = [None]\n_list[0] = X\n_got = _list[-1]",
    "_list = [X]\n_list.insert(0, 1)\n_got = _list[1]",
    "_list = []\n_list += [X]\n_got = _list[0]",
    "_list = [1]\n_list[1:] = [X]\n_got = _list[1]",
    "_list = []\n_list.extend(o for o in [X])\n_got = _list[0]",
    "_dict = {}\n_dict['k'] = X\n_got = _dict['k']",
    "_dict = {}\n_dict.update(k=X)\n_got = _dict['k']",
    "_dict = {}\n_dict |= {'k': X}\n_got = _dict['k']",
    "_dict = {}\n_dict.setdefault('k', []).append(X)\n_got = _dict['k'][0]",
    "_dict = collections.defaultdict(list)\n_dict['k'].append(X)\n_got = _dict['k'][0]",
    "_queue = collections.deque()\n_queue.append(X)\n_got = _queue.pop()",
    "_heap = []\nheapq.heappush(_heap, (0, X))\n_got = _heap[0][1]",
    "_array = np.empty(1, dtype=object)\n_array[0] = X\n_got = _array[0]",
    "def _inner(held=X):\n    return held\n_got = _inner()",
    "def _inner():\n    return _later\n_later = X\n_got = _inner()",
    "_got = None\ndef _inner():\n    nonlocal _got\n    _got = X\n_inner()",
    "def _inner():\n    yield X\n_got = next(_inner())",
    "def _inner():\n    yield from [X]\n_got = list(_inner())[0]",
    "_sent = _answer(1)\nnext(_sent)\n_got = _sent.send(X)",
    "_lazy = (o for o in (_late := []))\n_late.append(X)\n_got = next(_lazy)",
    "class _Local:\n    held = None\n_Local.held = X\n_got = _Local.held",
    "_made = list(zip(*[[X], [1]]))\n_got = _made[0][0]",
    "_got = [None, X][bool(t)]",
    "if t:\n    _got = X\nelse:\n    _got = None",
    "_a = _b = X\n_got = _b",
    "_a, _b = None, X\n_a, _b = _b, _a\n_got = _a",
)
