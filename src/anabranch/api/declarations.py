"""How users write operators with state: a class with declared state, one instance per key."""

from __future__ import annotations

import copy
import datetime
import functools
import inspect
from collections.abc import Callable
from typing import Any

from anabranch.errors import ProgramError
from anabranch.operators.timers import TIMER_FIELDS, TimedOperator
from anabranch.program.broadcasting import HELD, Broadcast, BroadcastField, broadcast_fields
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed
from anabranch.program.state_fields import StateField, StateHistory
from anabranch.state.maps import StateMap, StateMaps

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)


class _Declared:
    """What `state()` leaves in the class body until the class is read."""

    def __init__(self, default: Any, factory: Callable[[], Any] | None, was: tuple[str, ...] = ()) -> None:
        self.default = default
        self.factory = factory
        self.was = was
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        """An operator by itself, in a test say, has the state of a key that was never seen."""
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.factory() if self.factory is not None else self.default)


def state(default: Any = None, *, factory: Callable[[], Any] | None = None, was: str | tuple[str, ...] = ()) -> Any:
    """Declare an attribute of an `Operator` as state that is kept for every key.

    Parameters
    ----------
    default : immutable value
        What the attribute is for a key that is seen for the first time.
    factory : callable, optional
        Makes the first value instead, for values that are changed in place: ``state(factory=list)``.
    was : str or tuple of str, optional
        What the attribute was called in earlier versions of the program, latest first: what was kept under that name
        is found again under this one.

    Examples
    --------
    >>> class Count(Operator):
    ...     seen: int = state(default=0)
    ...     def process(self, t):
    ...         self.seen += 1
    ...         yield t
    """
    _check_first("state", default, factory)
    names = (was,) if isinstance(was, str) else was
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise ProgramError(f"state(was={was!r}): expected the name that the attribute had before, or several")
    return _Declared(default, factory, names)


def _check_first(called: str, default: Any, factory: Callable[[], Any] | None) -> None:
    if factory is None and not isinstance(default, _IMMUTABLE) and _is_container(default):
        whose = "all keys" if called == "state" else "all runs"
        raise ProgramError(
            f"{called}(default={default!r}): {whose} would share this one {type(default).__name__}; "
            f"write {called}(factory={type(default).__name__})"
        )
    if factory is not None and not callable(factory):
        raise ProgramError(f"{called}(factory={factory!r}): expected a callable such as list or dict")


def broadcast(default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """Declare an attribute of an `Operator` as broadcast state: all keys see it alike, ``on_broadcast`` changes it.

    Parameters
    ----------
    default : immutable value
        What it is before the first tuple of the broadcast stream.
    factory : callable, optional
        Makes that value instead, for values that are changed in place: ``broadcast(factory=dict)``.

    Examples
    --------
    >>> import anabranch as ab
    >>> class TooHigh(ab.Operator):
    ...     limits: dict = ab.broadcast(factory=dict)
    ...     def on_broadcast(self, rule):
    ...         self.limits[rule.kind] = rule.limit
    ...     def process(self, t):
    ...         if t.amount > self.limits.get(t.kind, 100):
    ...             yield t
    >>> rules = ab.from_rows([("card", 10)], "kind string, limit long")
    >>> payments = ab.from_rows([("a", "card", 30), ("b", "cash", 30)], "who string, kind string, amount long")
    >>> payments.process(TooHigh(), by="who", broadcast=rules, schema=payments.schema).run_sequential()
    [(who='a', kind='card', amount=30)]
    """
    _check_first("broadcast", default, factory)
    return BroadcastField(default, factory)


def store(*, ttl: float | datetime.timedelta | None = None) -> Any:
    """Declare a managed map as state: ``seen = ab.store(ttl=3600)``, then ``self.seen.put(key, value)``.

    Parameters
    ----------
    ttl : seconds or timedelta, optional
        How long an entry lives after it was last put.
    """
    ttl_ms = to_milliseconds(ttl)
    return state(factory=functools.partial(StateMap, ttl_ms))


def stores() -> Any:
    """Declare named maps that the operator makes and removes as it runs: ``self.stores.create("seen")``."""
    return state(factory=StateMaps)


def to_milliseconds(duration: float | datetime.timedelta | None) -> int | None:
    """A time to live in milliseconds; ProgramError if it is not a positive duration."""
    if duration is None:
        return None
    seconds = duration.total_seconds() if isinstance(duration, datetime.timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ProgramError(f"ttl={duration!r}: expected a positive number of seconds or a timedelta")
    return round(seconds * 1000)


def _is_container(value: Any) -> bool:
    return hasattr(value, "__setitem__") or hasattr(value, "add") or hasattr(value, "append")


class Operator(TimedOperator):
    """Base of operators with state per key.

    Write state as attributes declared with `state`, configuration as plain class attributes (which
    the constructor takes as keyword arguments), and a method ``process(self, t)`` that yields or
    returns tuples. For every key there is one instance; ``self`` is that of the tuple's key.

    An operator with a method ``on_timer(self, time)`` has timers: ``self.timers.at(time)``, ``self.timers.after(…)``.
    The method is called when time has come there, and yields or returns tuples as well. That time is the watermark of a
    stream with event time, else the clock of the epochs. ``on_end(self)`` is called when the input has ended, if the
    query is told to. ``on_punctuation(self)`` is called at each punctuation for the keys that had tuples since the
    last. ``on_broadcast(self, t)`` takes the tuples of a stream that every key sees, see `broadcast`.

    Examples
    --------
    >>> class Jump(Operator):
    ...     threshold: float = 10.0
    ...     stored: float = state(default=float("-inf"))
    ...     def process(self, t):
    ...         if abs(t.value - self.stored) > self.threshold:
    ...             self.stored = t.value
    ...             yield t
    >>> Jump(threshold=5.0).threshold
    5.0
    """

    def __init__(self, **configuration: Any) -> None:
        names = {field.name for field in state_fields(type(self))} | {
            field.name for field in broadcast_fields(type(self))
        }
        for name, value in configuration.items():
            if name in names:
                raise ProgramError(f"{type(self).__name__}({name}=…): {name} is state, not configuration")
            if not hasattr(type(self), name):
                known = [n for n in _configuration_names(type(self)) if n not in names]
                raise ProgramError(
                    f"{type(self).__name__}({name}=…): no such configuration; known: {', '.join(known) or 'none'}"
                )
            setattr(self, name, value)

    def process(self, t: Any) -> Any:
        """Take one tuple; yield or return tuples. Subclasses define it."""
        raise ProgramError(f"{type(self).__name__} has no process(self, t) method")


def _configuration_names(kind: type) -> list[str]:
    return [
        name
        for owner in reversed(kind.__mro__)
        if owner not in (object, Operator, TimedOperator)
        for name, value in vars(owner).items()
        if not name.startswith("_") and not inspect.isfunction(value)
    ]


def state_fields(kind: type) -> tuple[StateField, ...]:
    """The declared state of an operator class, base classes first."""
    found: dict[str, StateField] = {}
    for owner in reversed(kind.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, _Declared):
                found[name] = StateField(name, value.default, value.factory, value.was)
            elif name in found:
                del found[name]
    for name, field in found.items():
        taken = next((each for each in field.was if each in found), None)
        if taken is not None:
            raise ProgramError(
                f"{kind.__name__}.{name}: state(was={taken!r}): {kind.__name__} declares {taken} itself; a name that "
                "is used again needs a migration: process(…, version=2, migrate=…)"
            )
    return tuple(found.values())


def make_prototype(operator: Any) -> Any:
    """A copy of the user's operator to make instances from: no state in it, configuration only."""
    prototype = copy.copy(operator)
    prototype.__dict__.pop(HELD, None)
    for field in state_fields(type(operator)):
        prototype.__dict__.pop(field.name, None)
    return prototype


def keyed_logic(
    operator: Operator,
    ttl_ms: int | None,
    transient: bool,
    scale: TimeScale | None,
    time: str | None,
    history: StateHistory | None = None,
) -> Keyed:
    """The logic of an operator with state per key; `scale` is the kind of its stream's event time.

    ProgramError if what it defines does not go together.
    """
    kind = type(operator)
    _check_signatures(kind)
    declared = state_fields(kind)
    is_timed = kind.on_timer is not TimedOperator.on_timer or kind.on_end is not TimedOperator.on_end
    prototype = make_prototype(operator)
    if time not in (None, "event", "clock"):
        raise ProgramError(f"time={time!r}: expected 'event' or 'clock'")
    if hasattr(kind, "on_punctuation"):
        if is_timed:
            raise ProgramError(
                f"{kind.__name__} has on_punctuation and on_timer or on_end; expected one: make it two operators"
            )
        fields = (*declared, StateField("punctuation_open", False), StateField("opened"))
        return Keyed(
            prototype,
            "take_until_punctuation",
            fields,
            ttl_ms,
            transient,
            waiting="punctuation_open",
            punctuated="call_punctuated",
            history=history,
        )
    if not is_timed:
        if time is not None:
            raise ProgramError(
                f"time={time!r} is for operators with timers; {kind.__name__} has no on_timer(self, time)"
            )
        return Keyed(prototype, "process", declared, ttl_ms, transient, history=history)
    if ttl_ms is not None:
        raise ProgramError("ttl and timers do not go together: let a timer clear what the operator no longer needs")
    taken = [field.name for field in declared if field.name in TIMER_FIELDS]
    if taken:
        raise ProgramError(f"{kind.__name__}.{taken[0]}: timers have a field of this name; choose another")
    by_clock = time == "clock" or (time is None and scale is None)
    if not by_clock and scale is None:
        raise ProgramError("time='event' needs a stream with event time: stream.event_time('…') before it")
    prototype.timer_scale = TimeScale("clock") if by_clock or scale is None else scale
    fields = (*declared, StateField("timer_due"), StateField("timer_since"), StateField("timer_times", factory=list))
    method = "process" if kind.on_end is TimedOperator.on_end else "take_until_end"
    return Keyed(
        prototype, method, fields, transient=transient, timed="fire_timers", by_clock=by_clock, history=history
    )


_CALLED = {
    "on_timer": ("self", "time"),
    "on_end": ("self",),
    "on_punctuation": ("self",),
    "on_broadcast": ("self", "t"),
}


def _check_signatures(kind: type) -> None:
    """ProgramError if a method that is called between tuples cannot be called with what it gets."""
    for name, taken in _CALLED.items():
        method = inspect.getattr_static(kind, name, None)
        if not inspect.isfunction(method):
            continue
        try:
            inspect.signature(method).bind(*taken)
        except TypeError as problem:
            raise ProgramError(
                f"{kind.__name__}.{name} is called as {name}({', '.join(taken)}): {problem}; write it as "
                f"def {name}({', '.join(taken)})"
            ) from None


def broadcast_logic(operator: Operator, is_given: bool) -> Broadcast | None:
    """What an operator does with a stream that is broadcast to it; ProgramError if the two do not go together."""
    kind = type(operator)
    fields, method = broadcast_fields(kind), getattr(kind, "on_broadcast", None)
    name = kind.__name__
    if not is_given:
        if fields or method is not None:
            raise ProgramError(f"{name} has broadcast state: say which stream changes it, process(…, broadcast=…)")
        return None
    if method is None:
        raise ProgramError(f"broadcast=…: {name} has no method on_broadcast(self, t), which would take its tuples")
    if not fields:
        raise ProgramError(
            f"broadcast=…: {name} declares no broadcast state that on_broadcast(self, t) could change; in the class: "
            "limits = ab.broadcast(factory=dict)"
        )
    if inspect.isgeneratorfunction(method) or inspect.iscoroutinefunction(method):
        raise ProgramError(
            f"{name}.on_broadcast yields: it belongs to no key, and every channel calls it, so it emits nothing. What "
            "must come out for a tuple of that stream, another operator behind the stream can emit"
        )
    return Broadcast("on_broadcast", fields)
