"""Hidden state: everything here must be unknown."""

import functools
import gc
import itertools
import operator
import threading
import types

from tests.compiler.corpus import expect, expect_function

_counter = itertools.count()
_log = []
_state = {"n": 0}
_push = _log.append
_total = 0
_numbers = iter(range(10**6))


@expect_function("unknown")
def global_counter(t):
    global _total
    _total += 1
    yield t.but(count=_total)


@expect_function("unknown")
def shared_iterator(t):
    yield t.but(count=next(_counter))


@expect_function("unknown")
def loops_over_shared_iterator(t):
    for n in _numbers:
        yield t.but(count=n)
        break


@expect_function("unknown")
def unpacks_shared_iterator(t):
    first, *_ = itertools.islice(_numbers, 2)
    yield t.but(count=first)


@expect_function("unknown")
def global_list(t):
    _log.append(t.id)
    yield t.but(count=len(_log))


@expect_function("unknown")
def bound_alias(t):
    _push(t.id)
    yield t.but(count=len(_log))


@expect_function("unknown")
def unbound_method(t):
    list.append(_log, t.id)
    yield t.but(count=len(_log))


@expect_function("unknown")
def operator_setitem(t):
    operator.setitem(_state, "n", _state["n"] + 1)
    yield t.but(count=_state["n"])


@expect_function("unknown")
def augmented_list(t):
    l = _log
    l += [t.id]
    yield t.but(count=len(_log))


@expect_function("unknown")
def through_globals(t):
    globals()["_total"] += 1
    yield t.but(count=_total)


@expect_function("unknown")
def through_exec(t):
    exec("_log.append(1)")
    yield t.but(count=len(_log))


@expect_function("unknown")
def through_eval(t):
    yield t.but(count=eval("next(_counter)"))


@expect_function("unknown")
def function_attribute(t):
    function_attribute.n = getattr(function_attribute, "n", 0) + 1
    yield t.but(count=function_attribute.n)


@expect("unknown")
def mutable_default_list():
    def f(t, seen=[]):
        seen.append(t.id)
        return t.but(count=len(seen))

    return f


@expect("unknown")
def mutable_keyword_default():
    def f(t, *, box={"n": 0}):
        box["n"] += 1
        return t.but(count=box["n"])

    return f


@expect("unknown")
def nonlocal_counter():
    n = 0

    def f(t):
        nonlocal n
        n += 1
        return t.but(count=n)

    return f


@expect("unknown")
def closure_list():
    seen = []
    return lambda t: (seen.append(t.id), t.but(count=len(seen)))[1]


@expect("unknown")
class Attribute:
    def __init__(self):
        self.n = 0

    def __call__(self, t):
        self.n += 1
        yield t.but(count=self.n)


@expect("unknown")
class HelperMutates:
    def __init__(self):
        self.n = 0

    def helper(self, t):
        self.n += 1
        return self.n

    def __call__(self, t):
        yield t.but(count=self.helper(t))


@expect("unknown")
class SetAttr:
    n = 0

    def __call__(self, t):
        setattr(self, "n", self.n + 1)
        yield t.but(count=self.n)


@expect("unknown")
class ObjectSetAttr:
    n = 0

    def __call__(self, t):
        object.__setattr__(self, "n", self.n + 1)
        yield t.but(count=self.n)


@expect("unknown")
class Vars:
    n = 0

    def __call__(self, t):
        vars(self)["n"] = self.n + 1
        yield t.but(count=self.n)


@expect("unknown")
class DunderDict:
    n = 0

    def __call__(self, t):
        self.__dict__["n"] = self.n + 1
        yield t.but(count=self.n)


@expect("unknown")
class ClassAttribute:
    n = 0

    def __call__(self, t):
        type(self).n += 1
        yield t.but(count=self.n)


@expect("unknown")
class DunderClass:
    n = 0

    def __call__(self, t):
        self.__class__.n += 1
        yield t.but(count=self.n)


@expect("unknown")
class ClassList:
    seen = []

    def __call__(self, t):
        self.seen.append(1)
        yield t.but(count=len(self.seen))


@expect("unknown")
class PropertyWithEffect:
    def __init__(self):
        self._n = 0

    @property
    def n(self):
        self._n += 1
        return self._n

    def __call__(self, t):
        yield t.but(count=self.n)


class Descriptor:
    n = 0

    def __get__(self, instance, owner):
        Descriptor.n += 1
        return Descriptor.n


@expect("unknown")
class WithDescriptor:
    n = Descriptor()

    def __call__(self, t):
        yield t.but(count=self.n)


@expect("unknown")
class GetAttrHook:
    def __init__(self):
        self.calls = 0

    def __getattr__(self, name):
        self.__dict__["calls"] += 1
        return self.__dict__["calls"]

    def __call__(self, t):
        yield t.but(count=self.anything)


@expect("unknown")
class GeneratorOnSelf:
    def __init__(self):
        self.numbers = (n for n in range(10**6))

    def __call__(self, t):
        yield t.but(count=next(self.numbers))


@expect("unknown")
class SendsToGenerator:
    def __init__(self):
        def total():
            s = 0
            while True:
                s += yield s

        self.g = total()
        next(self.g)

    def __call__(self, t):
        yield t.but(count=self.g.send(1))


@expect("unknown")
class Base:
    def __init__(self):
        self.n = 0

    def tick(self):
        self.n += 1

    def __call__(self, t):
        self.tick()
        yield t.but(count=self.n)


@expect("unknown")
class CallsSuper(Base):
    def __call__(self, t):
        yield from super().__call__(t)


@functools.lru_cache(maxsize=None)
def _box(name):
    return []


@expect_function("unknown")
def cached_list(t):
    b = _box("x")
    b.append(1)
    yield t.but(count=len(b))


@functools.lru_cache(maxsize=None)
def _numbered(name):
    return next(_counter)


@expect_function("unknown")
def cache_of_impure(t):
    yield t.but(count=_numbered(t.name))


class Sneaky:
    n = 0

    def __eq__(self, other):
        Sneaky.n += 1
        return False

    def __add__(self, other):
        Sneaky.n += 1
        return Sneaky.n

    def __str__(self):
        Sneaky.n += 1
        return str(Sneaky.n)

    def __len__(self):
        Sneaky.n += 1
        return Sneaky.n

    def __getitem__(self, key):
        Sneaky.n += 1
        return Sneaky.n

    def __iter__(self):
        Sneaky.n += 1
        return iter([Sneaky.n])

    def __contains__(self, key):
        Sneaky.n += 1
        return Sneaky.n % 2 == 0

    def __bool__(self):
        Sneaky.n += 1
        return Sneaky.n % 2 == 0

    def __enter__(self):
        Sneaky.n += 1
        return Sneaky.n

    def __exit__(self, *args):
        return None

    def __call__(self):
        Sneaky.n += 1
        return Sneaky.n

    def __hash__(self):
        Sneaky.n += 1
        return Sneaky.n


_sneaky = Sneaky()


@expect_function("unknown")
def operator_with_effect(t):
    yield t.but(count=_sneaky + 1)


@expect_function("unknown")
def comparison_with_effect(t):
    if _sneaky == t.id:
        pass
    yield t.but(count=Sneaky.n)


@expect_function("unknown")
def text_with_effect(t):
    yield t.but(name=f"{_sneaky}")


@expect_function("unknown")
def length_with_effect(t):
    yield t.but(count=len(_sneaky))


@expect_function("unknown")
def item_with_effect(t):
    yield t.but(count=_sneaky[0])


@expect_function("unknown")
def iteration_with_effect(t):
    for n in _sneaky:
        yield t.but(count=n)


@expect_function("unknown")
def truth_with_effect(t):
    if _sneaky:
        yield t


@expect_function("unknown")
def membership_with_effect(t):
    if t.id in _sneaky:
        yield t


@expect_function("unknown")
def context_with_effect(t):
    with _sneaky as n:
        yield t.but(count=n)


@expect_function("unknown")
def call_with_effect(t):
    yield t.but(count=_sneaky())


@expect_function("unknown")
def hash_with_effect(t):
    d = {_sneaky: 1}
    yield t.but(count=Sneaky.n)


@expect_function("unknown")
def sort_key_with_effect(t):
    sorted(t.items, key=_log.append)
    yield t.but(count=len(_log))


@expect_function("unknown")
def lazy_map_with_effect(t):
    list(map(_log.append, t.items))
    yield t.but(count=len(_log))


def _appender(target):
    def add(x):
        target.append(x)

    return add


_add = _appender(_log)


@expect_function("unknown")
def closure_of_helper(t):
    _add(t.id)
    yield t.but(count=len(_log))


@expect_function("unknown")
def local_alias_in_list(t):
    boxes = [_log]
    boxes[0].append(1)
    yield t.but(count=len(_log))


@expect_function("unknown")
def late_alias_in_generator(t):
    boxes = []
    lazily = (box for box in boxes)
    boxes.append(_log)
    for box in lazily:
        box.append(1)
    yield t.but(count=len(_log))


@expect_function("unknown")
def late_alias_in_closure(t):
    def grow():
        target.append(1)

    target = _log
    grow()
    yield t.but(count=len(_log))


@expect_function("unknown")
def alias_by_argument(t):
    def grow(x, y=_log):
        y.append(x)

    grow(1)
    yield t.but(count=len(_log))


@expect_function("unknown")
def alias_in_object(t):
    box = types.SimpleNamespace(items=_log)
    box.items.append(1)
    yield t.but(count=len(_log))


class Box:
    def __init__(self, items):
        self.items = items


@expect_function("unknown")
def alias_in_own_object(t):
    box = Box(_log)
    box.items.append(1)
    yield t.but(count=len(_log))


@expect_function("unknown")
def alias_by_condition(t):
    target = [] if t.count > 2 else _log
    target.append(1)
    yield t.but(count=len(_log))


@expect_function("unknown")
def alias_in_loop(t):
    target = []
    for _ in range(2):
        target.append(1)
        target = _log
    yield t.but(count=len(_log))


@expect_function("unknown")
def walks_the_heap(t):
    for found in gc.get_objects():
        if found is _log:
            found.append(1)
    yield t.but(count=len(_log))


@expect("unknown")
class StartsAThread:
    def __init__(self):
        self.n = 0
        self.lock = threading.Lock()

    def run(self):
        threading.Thread(target=self.tick).start()

    def tick(self):
        self.n += 1

    def __call__(self, t):
        yield t.but(count=self.n)


def len(x):  # noqa: A001 - a pure function, replaced
    _log.append(1)
    return 7


@expect_function("unknown")
def replaced_builtin(t):
    yield t.but(count=len(t.items))


class Meta(type):
    n = 0

    @property
    def size(cls):
        Meta.n += 1
        return Meta.n


class Made(metaclass=Meta):
    pass


@expect_function("unknown")
def metaclass_property(t):
    yield t.but(count=Made.size)


@expect_function("unknown")
def partial_of_append(t):
    functools.partial(_log.append, 1)()
    yield t.but(count=_log.__len__())


@expect_function("unknown")
def reduce_into_shared(t):
    functools.reduce(lambda acc, x: acc.append(x) or acc, t.items, _log)
    yield t.but(count=_log.__len__())
