"""Pieces of which operators are made: state of many shapes, and work that keeps nothing.

Each is a few statements that give the variable `{r}` a number or text. `{d}` is where its state is, `{k}` the key,
`{i}` a number of its own for names that must not meet.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cell:
    """A piece: what its state is at the start (nothing: it has none), and its statements."""

    start: str
    body: str
    #: What it needs at the top of the module.
    head: str = ""


_ACC = """
class Acc:
    def __init__(self, n=0):
        self.n = n
        self.seen = []

    def add(self, x):
        self.n += x
        self.seen.append(x)
        return self.n
"""
_DATA = """
@dataclasses.dataclass
class Data:
    n: int = 0
    total: float = 0.0
    seen: list = dataclasses.field(default_factory=list)

    def add(self, x):
        self.n += 1
        self.total += x
        self.seen.append(x)
        return self.total

    @property
    def mean(self):
        return self.total / self.n
"""
_POINT = "Point = collections.namedtuple('Point', 'n total')\n"
_KIND = "class Kind(enum.Enum):\n    LOW = 1\n    HIGH = 2\n"

#: One entry for each key, and nothing else of them.
KEYED: tuple[Cell, ...] = (
    Cell("{}", "{d}[{k}] = {d}.get({k}, 0) + 1\n{r} = {d}[{k}]"),
    Cell("{}", "if {k} not in {d}:\n    {d}[{k}] = 0\n{d}[{k}] += t.count\n{r} = {d}[{k}]"),
    Cell("{}", "try:\n    {d}[{k}] += 1\nexcept KeyError:\n    {d}[{k}] = 1\n{r} = {d}[{k}]"),
    Cell("collections.defaultdict(int)", "{d}[{k}] += t.count\n{r} = {d}[{k}]"),
    Cell("collections.defaultdict(float)", "{d}[{k}] += t.value\n{r} = {d}[{k}]"),
    Cell("collections.defaultdict(list)", "{d}[{k}].append(t.value)\n{r} = sum({d}[{k}][-3:])"),
    Cell("{}", "{d}.setdefault({k}, []).append(t.count)\n{r} = len({d}[{k}])"),
    Cell("{}", "e{i} = {d}.setdefault({k}, {{'n': 0, 'l': []}})\ne{i}['n'] += 1\ne{i}['l'].append(t.count)\n"
               "{r} = e{i}['n'] + len(e{i}['l'])"),
    Cell("{}", "{d}.setdefault({k}, {{'l': []}})['l'].append(t.value)\n{r} = len({d}[{k}]['l'])"),
    Cell("collections.Counter()", "{d}[{k}] += 1\n{r} = {d}[{k}]"),
    Cell("set()", "{r} = int({k} in {d})\n{d}.add({k})"),
    Cell("set()", "if {k} in {d}:\n    {d}.discard({k})\n    {r} = 1\nelse:\n    {d}.add({k})\n    {r} = 0"),
    Cell("{}", "p{i}, {d}[{k}] = {d}.get({k}), t.value\n{r} = -1.0 if p{i} is None else p{i}"),
    Cell("{}", "p{i} = {d}.get({k})\n{d}[{k}] = t\n{r} = 0 if p{i} is None else p{i}.count"),
    Cell("{}", "a{i} = {d}.get({k})\nif a{i} is None:\n    a{i} = {d}[{k}] = Acc()\n{r} = a{i}.add(t.count)", _ACC),
    Cell("{}", "if {k} not in {d}:\n    {d}[{k}] = Acc(1)\n{d}[{k}].add(t.count)\n{r} = {d}[{k}].n", _ACC),
    Cell("collections.defaultdict(Acc)", "{r} = {d}[{k}].add(t.count)", _ACC),
    Cell("collections.defaultdict(Data)", "{d}[{k}].add(t.value)\n{r} = {d}[{k}].mean", _DATA),
    Cell("{}", "if {k} not in {d}:\n    {d}[{k}] = Data()\n{r} = {d}[{k}].add(t.value)", _DATA),
    Cell("{}", "o{i} = {d}.get({k}, Point(0, 0.0))\n{d}[{k}] = o{i}._replace(n=o{i}.n + 1)\n{r} = {d}[{k}].n", _POINT),
    Cell("{}", "n{i}, s{i} = {d}.get({k}, (0, 0.0))\n{d}[{k}] = (n{i} + 1, s{i} + t.value)\n{r} = s{i}"),
    Cell("collections.defaultdict(lambda: collections.defaultdict(int))",
         "{d}[{k}][t.count] += 1\n{r} = len({d}[{k}])"),
    Cell("collections.defaultdict(lambda: [0, {}])",
         "e{i} = {d}[{k}]\ne{i}[0] += 1\ne{i}[1][t.count] = e{i}[0]\n{r} = e{i}[0] + len(e{i}[1])"),
    Cell("collections.defaultdict(lambda: collections.deque(maxlen=3))",
         "{d}[{k}].append(t.value)\n{r} = sum({d}[{k}])"),
    Cell("collections.defaultdict(set)", "{d}[{k}].add(t.count)\n{r} = len({d}[{k}])"),
    Cell("collections.defaultdict(collections.Counter)", "{d}[{k}][t.count] += 1\n{r} = {d}[{k}].most_common(1)[0][1]"),
    Cell("{}", "h{i} = {d}.setdefault({k}, [])\nheapq.heappush(h{i}, t.value)\n"
               "if len(h{i}) > 2:\n    heapq.heappop(h{i})\n{r} = h{i}[0]"),
    Cell("{}", "if {k} not in {d}:\n    {d}[{k}] = np.zeros(3)\n{d}[{k}][t.count % 3] += 1\n"
               "{r} = float({d}[{k}].max())"),
    Cell("{}", "{d}[{k}] = ({d}.get({k}, '') + t.name)[-6:]\n{r} = {d}[{k}]"),
    Cell("{}", "v{i} = {d}.pop({k}, 0)\n{d}[{k}] = v{i} + 1\n{r} = v{i}"),
    Cell("{}", "if {d}.get({k}, 0) > 2:\n    del {d}[{k}]\nelse:\n    {d}[{k}] = {d}.get({k}, 0) + 1\n"
               "{r} = {d}.get({k}, -1)"),
    Cell("{}", "{d}.update({{{k}: {d}.get({k}, 0) + t.count}})\n{r} = {d}[{k}]"),
    Cell("{}", "{d}.update([({k}, {d}.get({k}, 0) + 1)])\n{r} = {d}[{k}]"),
    Cell("{}", "{d} |= {{{k}: {d}.get({k}, 0) + 1}}\n{r} = {d}[{k}]"),
    Cell("collections.OrderedDict()", "{d}[{k}] = {d}.get({k}, 0) + 1\n{r} = {d}[{k}]"),
    Cell("{}", "{d}[{k}] = [*{d}.get({k}, ()), t.count][-3:]\n{r} = sum({d}[{k}])"),
    Cell("{}", "{d}[{k}] = {d}.get({k}, []) + [t.value]\n{r} = max({d}[{k}])"),
    Cell("{}", "if (v{i} := {d}.get({k})) is None:\n    v{i} = 0\n{d}[{k}] = v{i} + 1\n{r} = v{i}"),
    Cell("{}", "match {d}.get({k}):\n    case None:\n        {d}[{k}] = 1\n    case n{i}:\n"
               "        {d}[{k}] = n{i} * 2\n{r} = {d}[{k}]"),
    Cell("{}", "g{i}, w{i} = {d}.get, {d}.__setitem__\nw{i}({k}, g{i}({k}, 0) + 1)\n{r} = g{i}({k})"),
    Cell("{}", "{d}[{k}] = max({d}.get({k}, -1e9), t.value)\n{r} = {d}[{k}]"),
    Cell("{}", "{d}[{k}] = Kind.HIGH if t.value > 3 else Kind.LOW\n{r} = {d}[{k}].name", _KIND),
    Cell("{}", "b{i} = {d}.setdefault({k}, bytearray())\nb{i}.append(t.count)\n{r} = len(b{i})"),
    Cell("{}", "{d}[{k}] = {{**{d}.get({k}, {{}}), t.count: t.value}}\n{r} = len({d}[{k}])"),
    Cell("{}", "o{i} = dict({d}.get({k}) or {{}})\no{i}[t.count] = 1\n{d}[{k}] = o{i}\n{r} = len(o{i})"),
    Cell("{}", "o{i} = list({d}.get({k}, ()))\no{i}.append(t.count)\n{d}[{k}] = o{i}\n{r} = len(o{i})"),
    Cell("{}", "l{i} = {d}.setdefault({k}, [])\nl{i}.append({{'v': t.value}})\nl{i}[-1]['w'] = len(l{i})\n"
               "{r} = sum(x['w'] for x in l{i})"),
    Cell("{}", "l{i} = {d}.setdefault({k}, [])\nl{i}.append((t.value, t.count))\nl{i}.sort()\n{r} = l{i}[0][1]"),
    Cell("collections.defaultdict(lambda: {'n': 0, 'last': None})",
         "e{i} = {d}[{k}]\ne{i}['n'] += 1\np{i}, e{i}['last'] = e{i}['last'], t.value\n{r} = e{i}['n'] if p{i} else 0"),
)  # fmt: skip

#: State that all keys share: none of these may run in parallel. `{d}` holds all of it.
SHARED: tuple[Cell, ...] = (
    Cell("0", "{d} += 1\n{r} = {d}"),
    Cell("0.0", "{d} = {d} * 0.5 + t.value\n{r} = {d}"),
    Cell("[]", "{d}.append(t.count)\n{r} = len({d})"),
    Cell("[0]", "{d}[0] += t.count\n{r} = {d}[0]"),
    Cell("None", "p{i} = {d}\n{d} = t\n{r} = 0 if p{i} is None else p{i}.count"),
    Cell("{}", "{d}['all'] = {d}.get('all', 0) + 1\n{r} = {d}['all']"),
    Cell("{}", "{d}[{k}] = t.count\n{r} = len({d})"),
    Cell("{}", "{d}[{k}] = t.count\n{r} = sum({d}.values())"),
    Cell("set()", "{d}.add(t.count)\n{r} = len({d})"),
    Cell("collections.Counter()", "{d}[t.name] += 1\n{r} = {d}.most_common(1)[0][1]"),
    Cell("collections.deque(maxlen=4)", "{d}.append(t.value)\n{r} = sum({d})"),
    Cell("np.zeros(4)", "{d}[t.count % 4] += 1\n{r} = float({d}.sum())"),
    Cell("np.zeros((2, 2))", "w{i} = {d}[t.count % 2]\nw{i} += 1\n{r} = float({d}.sum())"),
    Cell("Acc()", "{r} = {d}.add(t.count)", _ACC),
    Cell("Data()", "{d}.add(t.value)\n{r} = {d}.mean", _DATA),
    Cell("[[], []]", "{d}[t.count % 2].append(1)\n{r} = len({d}[0])"),
    Cell("{'a': [], 'b': {}}", "{d}['a'].append(1)\n{d}['b'][t.count] = 1\n{r} = len({d}['a']) + len({d}['b'])"),
    Cell("bytearray()", "{d}.append(t.count)\n{r} = len({d})"),
    Cell("''", "{d} = ({d} + t.name)[-5:]\n{r} = {d}"),
    Cell("(0, 0)", "{d} = ({d}[0] + 1, t.count)\n{r} = {d}[0]"),
    Cell("itertools.count()", "{r} = next({d})"),
    Cell("random.Random(7)", "{r} = {d}.randrange(1000)"),
    Cell("[]", "heapq.heappush({d}, t.value)\n{r} = {d}[0]"),
    Cell("[]", "{d}[:] = [*{d}, t.count][-3:]\n{r} = sum({d})"),
    Cell("[]", "{d} += [t.count]\n{r} = len({d})"),
    Cell("collections.defaultdict(int)", "{d}[t.count] += 1\n{r} = max({d}.values())"),
    Cell("{}", "{d}.setdefault(0, []).append(t.value)\n{r} = len({d}[0])"),
    Cell("[None]", "{d}[0], p{i} = t, {d}[0]\n{r} = p{i}.count if p{i} else 0"),
    Cell("array.array('d')", "{d}.append(t.value)\n{r} = len({d})"),
    Cell("io.StringIO()", "{d}.write(t.name)\n{r} = len({d}.getvalue())"),
)

#: Work that keeps nothing: what is changed is made in the call.
LOCAL: tuple[Cell, ...] = (
    Cell("", "l{i} = t.items[:]\nl{i}.append(t.value)\n{r} = sum(l{i})"),
    Cell("", "l{i} = list(t.items)\nl{i}.sort(reverse=True)\n{r} = l{i}[0] if l{i} else 0"),
    Cell("", "l{i} = t.items.copy()\nl{i}[0:1] = []\n{r} = len(l{i})"),
    Cell("", "l{i} = copy.copy(t.items)\nl{i} += [1.0]\n{r} = len(l{i})"),
    Cell("", "l{i} = [*t.items]\nl{i}.insert(0, t.value)\n{r} = max(l{i})"),
    Cell("", "w{i} = np.array(t.items, dtype=float)\nw{i} *= 2\n{r} = float(w{i}.sum())"),
    Cell("", "a{i} = Acc()\nfor x in t.items:\n    a{i}.add(x)\n{r} = a{i}.n", _ACC),
    Cell("", "a{i} = Data()\na{i}.add(t.value)\n{r} = a{i}.mean", _DATA),
    Cell("", "d{i} = {}\nfor x in t.items:\n    d{i}.setdefault(int(x), []).append(x)\n{r} = len(d{i})"),
    Cell("", "c{i} = collections.Counter(t.name)\n{r} = c{i}['a']"),
    Cell("", "n{i} = 0\ndef bump{i}():\n    nonlocal n{i}\n    n{i} += t.count\nbump{i}()\nbump{i}()\n{r} = n{i}"),
    Cell("", "def walk{i}(xs):\n    for x in xs:\n        yield x * 2\n{r} = sum(walk{i}(t.items))"),
    Cell("", "{r} = functools.reduce(lambda a, b: a + b, t.items, 0.0)"),
    Cell("", "s{i} = io.StringIO()\ns{i}.write(t.name)\n{r} = s{i}.getvalue()"),
    Cell("", "{r} = random.Random(t.count).randrange(100)"),
    Cell("", "{r} = t.name.translate(str.maketrans('ab', 'xy'))"),
    Cell("", "d{i} = json.loads(json.dumps({{'v': t.items, 'n': t.name}}))\nd{i}['v'].append(1)\n{r} = len(d{i}['v'])"),
    Cell("", "q{i} = collections.deque(t.items, maxlen=2)\nq{i}.appendleft(0.0)\n{r} = q{i}[-1]"),
    Cell("", "{r} = '-'.join(sorted({{t.name, 'z'}}))"),
    Cell("", "{r} = {{'a': 1, 'b': 2}}.get(t.name, 0)"),
    Cell("", "p{i} = Point(t.count, t.value)\n{r} = p{i}._replace(n=3).n", _POINT),
    Cell("", "m{i} = re.match(r'(.)', t.name)\n{r} = m{i}.group(1) if m{i} else ''"),
    Cell("", "{r} = (t.day + datetime.timedelta(days=1)).isoformat()"),
    Cell("", "try:\n    {r} = 10 // (t.count - 2)\nexcept ZeroDivisionError:\n    {r} = -1"),
)
