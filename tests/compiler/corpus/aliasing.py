"""Tricky aliasing of state and of the tuple."""

from collections import defaultdict

from tests.compiler.corpus import expect, expect_function


@expect_function("unknown")
def changes_the_tuple(t):
    t.items.append(1.0)
    yield t


@expect_function("unknown")
def changes_the_tuple_by_alias(t):
    items = t.items
    items.sort()
    yield t


@expect_function("unknown")
def changes_the_tuple_in_place(t):
    items = t.items
    items += [1.0]
    yield t


@expect_function("stateless")
def adds_to_a_number(t):
    total = t.items[0] if t.items else 0.0
    total += 1
    yield t.but(value=total)


@expect("unknown", truth="safe")
class MovesBetweenDicts:
    # The list leaves one dict for the other in the same call; only a proof of that would allow it.
    def __init__(self):
        self.now = {}
        self.done = {}

    def __call__(self, t):
        self.now.setdefault(t.id, []).append(t.value)
        if t.count > 2:
            self.done[t.id] = self.now.pop(t.id)
            yield t.but(count=len(self.done[t.id]))


@expect("unknown")
class OneListInTwoDicts:
    def __init__(self):
        self.a = {}
        self.b = {}

    def __call__(self, t):
        if t.id not in self.a:
            fresh = []
            self.a[t.id] = fresh
            self.b[t.id] = fresh
        self.a[t.id].append(t.value)
        yield t.but(count=len(self.b[t.id]))


@expect("unknown")
class OneListTwiceInOneEntry:
    def __init__(self):
        self.s = {}

    def __call__(self, t):
        if t.id not in self.s:
            current = []
            self.s[t.id] = {"current": current, "all": [current]}
        self.s[t.id]["current"].append(t.value)
        yield t.but(count=len(self.s[t.id]["all"][0]))


@expect("partitioned", key="id")
class NumbersBetweenDicts:
    def __init__(self):
        self.last = {}
        self.before = {}

    def __call__(self, t):
        if t.id in self.last:
            self.before[t.id] = self.last[t.id]
        self.last[t.id] = t.value
        if t.id in self.before:
            yield t.but(value=self.last[t.id] - self.before[t.id])


@expect("unknown")
class DictInDisguise:
    def __init__(self):
        self.counts = {}
        self.view = [self.counts]

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(count=len(self.view[0]))


@expect("partitioned", key="id")
class DictInLocalTuple:
    def __init__(self):
        self.a = defaultdict(int)
        self.b = defaultdict(float)

    def __call__(self, t):
        a, b = self.a, self.b
        a[t.id] += 1
        b[t.id] += t.value
        yield t.but(value=b[t.id] / a[t.id])


@expect("partitioned", key="id")
class ChoosesADict:
    def __init__(self):
        self.up = defaultdict(int)
        self.down = defaultdict(int)

    def __call__(self, t):
        d = self.up if t.value > 0 else self.down
        d[t.id] += 1
        yield t.but(count=d[t.id])


@expect("unknown")
class ReturnsItsDict:
    def __init__(self):
        self.counts = {}

    def all(self):
        return self.counts

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(count=len(self.all()))


@expect("unknown")
class EmitsItsDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        yield (t.id, self.counts)


@expect("partitioned", key="id")
class ReturnsItsDictForOneKey:
    def __init__(self):
        self.counts = {}

    def all(self):
        return self.counts

    def __call__(self, t):
        self.all()[t.id] = self.all().get(t.id, 0) + 1
        yield t.but(count=self.all()[t.id])


@expect("unknown")
class ShadowsKey:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        for t in [t, t.but(id=0)]:
            self.counts[t.id] += 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class KeyOfChangedTuple:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        u = t.but(id=t.count)
        self.counts[t.id] += 1
        self.counts[u.id] += 1
        yield t.but(count=self.counts[t.id])


@expect("partitioned", key="id")
class KeyOfTupleWithOtherChanges:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        u = t.but(value=0.0)
        self.counts[u.id] += 1
        yield u.but(count=self.counts[u.id])


@expect("unknown")
class KeepsTheTuplesList:
    # Kept, then changed: the list belongs to the tuple.
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        if t.id in self.last:
            self.last[t.id].append(1.0)
            yield t.but(items=list(self.last[t.id]))
        self.last[t.id] = t.items


@expect("partitioned", key="id")
class KeepsACopyOfTheTuplesList:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        if t.id in self.last:
            self.last[t.id].append(1.0)
            yield t.but(items=list(self.last[t.id]))
        self.last[t.id] = list(t.items)


@expect("unknown")
class LoopStoresOneList:
    def __init__(self):
        self.rows = {}

    def __call__(self, t):
        row = [t.value]
        self.rows[t.id] = []
        for _ in range(2):
            self.rows[t.id].append(row)
        self.rows[t.id][0].append(1.0)
        yield t.but(count=len(self.rows[t.id][1]))


@expect("partitioned", key="id")
class ListOfLists:
    def __init__(self):
        self.rows = {}

    def __call__(self, t):
        rows = self.rows.setdefault(t.id, [])
        rows.append([t.value, t.count])
        yield t.but(count=len(rows), value=rows[0][0])
