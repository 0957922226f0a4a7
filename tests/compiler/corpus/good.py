"""Case 1: declared state, one instance per key."""

import collections
from typing import Any

from anabranch.api.declarations import Operator, state

from tests.compiler.corpus import expect


@expect("partitioned", key="id", by=("id",), selectivity="1:[0,1]")
class Jump(Operator):
    threshold: float = 10.0
    stored: float = state(default=float("-inf"))

    def process(self, t):
        if abs(t.value - self.stored) > self.threshold:
            self.stored = t.value
            yield t


@expect("partitioned", key="id", by=("id",), selectivity="1:1")
class RunningSum(Operator):
    total: float = state(default=0.0)

    def process(self, t):
        self.total += t.value
        yield t.but(value=self.total)


@expect("partitioned", key="id, name", by=("id", "name"))
class TwoColumns(Operator):
    seen: int = state(default=0)

    def process(self, t):
        self.seen += 1
        return t.but(count=self.seen)


@expect("partitioned", key="id", by=("id",))
class Window(Operator):
    size: int = 3
    values: Any = state(factory=list)

    def process(self, t):
        self.values.append(t.value)
        if len(self.values) > self.size:
            self.values.pop(0)
        yield t.but(value=sum(self.values) / len(self.values))


@expect("partitioned", key="id", by=("id",))
class DequeWindow(Operator):
    values: Any = state(factory=collections.deque)

    def process(self, t):
        window = self.values
        window.append(t.value)
        while len(window) > 4:
            window.popleft()
        yield t.but(value=max(window))


@expect("partitioned", key="id", by=("id",))
class StateInHelper(Operator):
    total: float = state(default=0.0)
    seen: int = state(default=0)

    def update(self, value):
        self.total += value
        self.seen += 1

    def mean(self):
        return self.total / self.seen

    def process(self, t):
        self.update(t.value)
        yield t.but(value=self.mean())


@expect("partitioned", key="id", by=("id",))
class InheritedState(StateInHelper):
    best: float = state(default=float("-inf"))

    def process(self, t):
        for each in super().process(t):
            self.best = max(self.best, each.value)
            yield each.but(value=self.best)


@expect("partitioned", key="id", by=("id",))
class NestedDict(Operator):
    counts: Any = state(factory=dict)

    def process(self, t):
        self.counts[t.name] = self.counts.get(t.name, 0) + 1
        if len(self.counts) > 2:
            yield t.but(count=len(self.counts))


@expect("partitioned", key="id", by=("id",))
class LastTwo(Operator):
    last: Any = state(default=None)
    before: Any = state(default=None)

    def process(self, t):
        self.before, self.last = self.last, t.value
        if self.before is not None:
            yield t.but(value=self.last - self.before)


@expect("unknown", by=("id",))
class UndeclaredState(Operator):
    seen: int = state(default=0)

    def process(self, t):
        self.seen += 1
        self.everything = getattr(self, "everything", 0) + 1
        yield t.but(count=self.everything)


@expect("unknown", by=("id",))
class ClassCounter(Operator):
    seen: int = state(default=0)
    all_seen = 0

    def process(self, t):
        self.seen += 1
        type(self).all_seen += 1
        yield t.but(count=type(self).all_seen)


@expect("unknown", by=("id",))
class SharedConfiguration(Operator):
    template = []
    values: Any = state(default=None)

    def process(self, t):
        if self.values is None:
            self.values = self.template
        self.values.append(t.value)
        yield t.but(count=len(self.values))


@expect("partitioned", key="id", by=("id",))
class TwoNamesForOneList(Operator):
    a: Any = state(factory=list)
    b: Any = state(factory=list)

    def process(self, t):
        fresh = [t.value]
        self.a = fresh
        self.b = fresh
        self.a.append(1.0)
        yield t.but(count=len(self.b))


@expect("unknown", by=("id",))
class KeepsAGenerator(Operator):
    source: Any = state(default=None)

    def process(self, t):
        if self.source is None:
            self.source = iter([1, 2, 3])
        yield t.but(count=next(self.source, 0))


@expect("partitioned", key="id", by=("id",))
class TupleState(Operator):
    pair: Any = state(default=(0, 0.0))

    def process(self, t):
        n, s = self.pair
        self.pair = (n + 1, s + t.value)
        yield t.but(count=self.pair[0], value=self.pair[1])
