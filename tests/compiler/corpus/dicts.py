"""Case 2: ordinary code with its own dicts; case 3: the state API."""

import collections
from collections import Counter, OrderedDict, defaultdict

from anabranch.program.model import model

from tests.compiler.corpus import expect, expect_function


@expect("partitioned", key="id", selectivity="1:[0,1]")
class JumpByHand:
    def __init__(self):
        self.stored = {}

    def __call__(self, t):
        if t.id not in self.stored or abs(t.value - self.stored[t.id]) > 10.0:
            self.stored[t.id] = t.value
            yield t


@expect("partitioned", key="id", selectivity="1:1")
class CountByGet:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        return t.but(count=self.counts[t.id])


@expect("partitioned", key="id")
class CountByDefault:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t.id] += 1
        yield t.but(count=self.counts[t.id])


@expect("partitioned", key="name")
class CountByCounter:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        self.counts[t.name] += 1
        if self.counts[t.name] % 2 == 0:
            yield t


@expect("partitioned", key="id")
class Alias:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        d = self.counts
        k = t.id
        d[k] += t.count
        yield t.but(count=d[k])


@expect("partitioned", key="id")
class SetDefault:
    def __init__(self):
        self.values = {}

    def __call__(self, t):
        seen = self.values.setdefault(t.id, [])
        seen.append(t.value)
        yield t.but(count=len(seen))


@expect("partitioned", key="id")
class ListPerKey:
    def __init__(self):
        self.values = defaultdict(list)

    def __call__(self, t):
        window = self.values[t.id]
        window.append(t.value)
        if len(window) > 3:
            del window[0]
        yield t.but(value=sum(window) / len(window))


@expect("partitioned", key="id")
class DictPerKey:
    def __init__(self):
        self.values = defaultdict(dict)

    def __call__(self, t):
        inner = self.values[t.id]
        inner[t.name] = inner.get(t.name, 0) + 1
        yield t.but(count=len(inner))


@expect("partitioned", key="id, name")
class TupleKey:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        key = (t.id, t.name)
        if key in self.last:
            yield t.but(value=t.value - self.last[key])
        self.last[key] = t.value


@expect("partitioned", key="id")
class CoarserKey:
    def __init__(self):
        self.pairs = {}
        self.totals = defaultdict(float)

    def __call__(self, t):
        self.pairs[t.id, t.name] = self.pairs.get((t.id, t.name), 0) + 1
        self.totals[t.id] += t.value
        yield t.but(count=self.pairs[t.id, t.name], value=self.totals[t.id])


@expect("partitioned", key="id")
class SeveralDicts:
    def __init__(self):
        self.total = {}
        self.seen = {}

    def __call__(self, t):
        self.total[t.id] = self.total.get(t.id, 0.0) + t.value
        self.seen[t.id] = self.seen.get(t.id, 0) + 1
        yield t.but(value=self.total[t.id] / self.seen[t.id])


@expect("partitioned", key="id")
class Deletes:
    def __init__(self):
        self.open = {}

    def __call__(self, t):
        if t.name == "start":
            self.open[t.id] = t.value
        elif t.id in self.open:
            yield t.but(value=t.value - self.open[t.id])
            del self.open[t.id]


@expect("partitioned", key="id")
class Pops:
    def __init__(self):
        self.open = {}

    def __call__(self, t):
        before = self.open.pop(t.id, None)
        if before is None:
            self.open[t.id] = t.value
        else:
            yield t.but(value=t.value - before)


@expect("partitioned", key="id")
class KeyErrors:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        try:
            before = self.last[t.id]
        except KeyError:
            before = 0.0
        self.last[t.id] = t.value
        yield t.but(value=before)


@expect("partitioned", key="id")
class RaisesKeyError:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        if t.count > 2:
            self.last[t.id] = t.value
        yield t.but(value=self.last[t.id])


@expect("partitioned", key="t.name.lower()")
class KeyExpression:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        self.counts[t.name.lower()] += 1
        yield t.but(count=self.counts[t.name.lower()])


@expect("partitioned", key="(t.id // 10)")
class Bucket:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        bucket = t.id // 10
        self.counts[bucket] += 1
        yield t.but(count=self.counts[bucket])


def _bucket(t):
    return t.id % 7


@expect("partitioned", key="(t.id % 7)")
class KeyFromHelper:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        k = _bucket(t)
        self.counts[k] = self.counts.get(k, 0) + 1
        yield t.but(count=self.counts[k])


@expect("partitioned", key="id")
class HelperMethod:
    def __init__(self):
        self.counts = {}

    def bump(self, key):
        self.counts[key] = self.counts.get(key, 0) + 1
        return self.counts[key]

    def __call__(self, t):
        n = self.bump(t.id)
        if n > 1:
            yield t.but(count=n)


def bump(counts, key):
    counts[key] = counts.get(key, 0) + 1
    return counts[key]


@expect("partitioned", key="id")
class PassesItsDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        yield t.but(count=bump(self.counts, t.id))


@expect("partitioned", key="id")
def closure_dict():
    counts = {}

    def count(t):
        counts[t.id] = counts.get(t.id, 0) + 1
        return t.but(count=counts[t.id])

    return count


@expect("partitioned", key="id", mode="map")
def closure_defaultdict_map():
    counts = defaultdict(int)

    def count(t):
        counts[t.id] += 1
        return t.but(count=counts[t.id])

    return count


@expect("partitioned", key="id", mode="filter")
def closure_set_filter():
    seen = set()

    def first(t):
        if t.id in seen:
            return False
        seen.add(t.id)
        return True

    return first


@expect("partitioned", key="name")
class SeenSet:
    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        if t.name not in self.seen:
            self.seen.add(t.name)
            yield t


_GLOBAL_COUNTS = {}


@expect_function("partitioned", key="id")
def global_dict(t):
    _GLOBAL_COUNTS[t.id] = _GLOBAL_COUNTS.get(t.id, 0) + 1
    yield t.but(count=_GLOBAL_COUNTS[t.id])


@expect("partitioned", key="id")
def mutable_default():
    def count(t, counts={}):
        counts[t.id] = counts.get(t.id, 0) + 1
        return t.but(count=counts[t.id])

    return count


@expect("partitioned", key="id")
class Ordered:
    def __init__(self):
        self.last = OrderedDict()

    def __call__(self, t):
        before = self.last.get(t.id)
        self.last[t.id] = t.value
        if before is not None:
            yield t.but(value=before)


@expect("partitioned", key="id")
class ExplicitMethods:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        if self.last.__contains__(t.id):
            yield t.but(value=self.last.__getitem__(t.id))
        self.last.__setitem__(t.id, t.value)


@expect("partitioned", key="id")
class DefaultOfDefaults:
    def __init__(self):
        self.values = defaultdict(lambda: {"n": 0, "sum": 0.0})

    def __call__(self, t):
        entry = self.values[t.id]
        entry["n"] += 1
        entry["sum"] += t.value
        yield t.but(count=entry["n"], value=entry["sum"])


@expect("partitioned", key="id")
class TupleValues:
    def __init__(self):
        self.stats = {}

    def __call__(self, t):
        n, total = self.stats.get(t.id, (0, 0.0))
        n, total = n + 1, total + t.value
        self.stats[t.id] = (n, total)
        yield t.but(count=n, value=total / n)


@expect("partitioned", key="id")
class DequePerKey:
    def __init__(self):
        self.windows = {}

    def __call__(self, t):
        window = self.windows.get(t.id)
        if window is None:
            window = self.windows[t.id] = collections.deque(maxlen=3)
        window.append(t.value)
        yield t.but(value=min(window))


@expect("partitioned", key="id")
class SubscriptByName:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t["id"]] += 1
        yield t.but(count=self.counts[t.id])


@expect("partitioned", key="id")
class Walrus:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        if (before := self.last.get(t.id)) is not None and before < t.value:
            yield t
        self.last[t.id] = t.value


@expect("partitioned", key="id")
class UpdateOne:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        yield t.but(value=self.last.get(t.id, 0.0))
        self.last.update({t.id: t.value})


@expect("partitioned", key="id")
class NoneGuard:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        prior = self.last.get(t.id)
        self.last[t.id] = t
        if prior is None:
            return
        yield t.but(value=t.value - prior.value)


@expect("partitioned", key="id")
class BoundAlias:
    def __init__(self):
        self.values = defaultdict(list)

    def __call__(self, t):
        push = self.values[t.id].append
        push(t.value)
        yield t.but(count=len(self.values[t.id]))


@expect("partitioned", key="t.day.isoformat()")
class DayKey:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        day = t.day.isoformat()
        self.counts[day] += 1
        yield t.but(count=self.counts[day])


@expect("partitioned", key="day")
class DateKey:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        self.counts[t.day] += 1
        yield t.but(count=self.counts[t.day])


@expect("partitioned", key="''.join((format(t.name), format('/'), format(t.id),))")
class TextKey:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        key = f"{t.name}/{t.id}"
        self.counts[key] = self.counts.get(key, 0) + 1
        yield t.but(count=self.counts[key])


# -- not provable -----------------------------------------------------------------------------------------


@expect("unknown")
class Length:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(count=len(self.counts))


@expect("unknown")
class Iterates:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t.id] += 1
        yield t.but(count=sum(self.counts.values()))


@expect("unknown")
class Truthiness:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if not self.counts:
            yield t
        self.counts[t.id] = 1


@expect("unknown")
class TwoKeys:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t.id] += 1
        self.counts[t.count] += 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class DifferentKeys:
    def __init__(self):
        self.a = defaultdict(int)
        self.b = defaultdict(int)

    def __call__(self, t):
        self.a[t.id] += 1
        self.b[t.name] += 1
        yield t.but(count=self.a[t.id] + self.b[t.name])


@expect("unknown")
class ConstantKey:
    def __init__(self):
        self.totals = defaultdict(float)

    def __call__(self, t):
        self.totals["all"] += t.value
        yield t.but(value=self.totals["all"])


@expect("unknown")
class MixedConstant:
    def __init__(self):
        self.totals = defaultdict(float)

    def __call__(self, t):
        self.totals[t.id] += t.value
        self.totals[0] += t.value
        yield t.but(value=self.totals[t.id])


@expect("unknown")
class KeyFromState:
    def __init__(self):
        self.last = {}
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[self.last.get(t.id, 0)] += 1
        self.last[t.id] = t.count
        yield t.but(count=self.counts[t.count])


@expect("unknown")
class ChangingKey:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        k = t.id
        for _ in range(2):
            self.counts[k] += 1
            k += 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class FloatKey:
    # NaN is never equal to itself: each would be a key of its own.
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t.value] += 1
        yield t.but(count=self.counts[t.value])


@expect("unknown")
class Rebinds:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if t.count == 0:
            self.counts = {}
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class Clears:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if t.count == 0:
            self.counts.clear()
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class DictAndScalar:
    def __init__(self):
        self.counts = {}
        self.total = 0

    def __call__(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        self.total += 1
        yield t.but(count=self.total)


@expect("partitioned", key="id")
class FilledAtStart:
    def __init__(self):
        self.counts = {1: 100}

    def __call__(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        yield t.but(count=self.counts[t.id])


@expect("unknown")
class SharedDefault:
    def __init__(self):
        self.empty = []
        self.values = {}

    def __call__(self, t):
        self.values.setdefault(t.id, self.empty).append(t.value)
        yield t.but(count=len(self.values[t.id]))


_SHARED_LIST = []


@expect("unknown")
class SharedFactory:
    def __init__(self):
        self.values = defaultdict(lambda: _SHARED_LIST)

    def __call__(self, t):
        self.values[t.id].append(t.value)
        yield t.but(count=len(self.values[t.id]))


@expect("unknown")
class MostCommon:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        self.counts[t.id] += 1
        yield t.but(count=self.counts.most_common(1)[0][0])


@expect("unknown")
class CopiesAll:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        self.counts[t.id] += 1
        snapshot = dict(self.counts)
        yield t.but(count=len(snapshot))


@expect("unknown")
class SetSize:
    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        self.seen.add(t.id)
        yield t.but(count=len(self.seen))


@expect("unknown")
class DictSubclass(dict):
    def __missing__(self, key):
        self["n"] = self.get("n", 0) + 1
        return self["n"]

    def __call__(self, t):
        yield t.but(count=self[t.id])


class LoudDict(dict):
    writes = 0

    def __setitem__(self, key, value):
        LoudDict.writes += 1
        super().__setitem__(key, value)


@expect("unknown")
class UsesLoudDict:
    def __init__(self):
        self.counts = LoudDict()

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(count=LoudDict.writes)


@expect("partitioned", key="('many' if (t.count > 2) else t.name)")
class ConditionalKey:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        if t.count > 2:
            k = "many"
        else:
            k = t.name
        self.counts[k] += 1
        yield t.but(count=self.counts[k])
