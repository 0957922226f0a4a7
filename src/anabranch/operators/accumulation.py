"""Accumulators: state that is summed up in copies, one for each fixed block of positions.

    positions   0 ── block ── | ── block ── | ── block ── | ── block ── |
    copies          copy            copy          copy          copy        one for each block, from nothing
                      └──── merge ────┘             └──── merge ────┘       in the order of the positions
                            stretch                       stretch           every so many tuples
                                 └───────── merge ───────────┘
                                           total                            what `result` sees

Blocks do not depend on each other, so several are under way at once; where a block begins and what is merged with what
depends on positions alone. One thread does the same, block by block: that is what accumulating means, and so the result
is the same to the last bit whatever the number of workers. When the input has ended, what is in a block or a stretch
that is not full is merged as well, and told. (One shared copy that all change was slower than one thread in
*Operators*; separate copies that are merged late, in stages, won.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.operators.library_operator import LibraryOperator, UserFunction, configured, fields
from anabranch.program.calling import emitted
from anabranch.program.elastic import Concurrency
from anabranch.program.event_time import END
from anabranch.program.graph import Keyed

Values = dict[str, Any]
"""Accumulator → its value in one copy."""


class Accumulate(LibraryOperator):
    """The accumulators of a stream.

    Attributes
    ----------
    user : object
        The user's operator; copies of it hold the values while its methods run.
    names, firsts, combines : tuple
        Of each accumulator: its name, what makes a new one, what makes one of two.
    block, every : int
        Tuples of a block, and of a stretch.
    commutative : bool
        Blocks may be merged in any order.
    concurrency : Concurrency or None
        How several blocks are worked on at once; None: one after the other.
    count : int
        State: tuples so far.
    part, stretch, total : dict or None
        State: the values of the block, of the stretch and of all before; None if there is nothing in it yet.
    timer_due, timer_since : int or None, tuple or None
        State: it waits for the end of the input if there is anything that was not told yet.
    """

    user: Any
    names: tuple[str, ...]
    firsts: tuple[Callable[[], Any], ...]
    combines: tuple[Callable[[Any, Any], Any], ...]
    block: int
    every: int
    commutative: bool
    concurrency: Concurrency | None
    count: int
    part: Values | None
    stretch: Values | None
    total: Values | None
    timer_due: int | None
    timer_since: Any

    def users_code(self) -> list[tuple[str, Any]]:
        made = [(f"the factory of {name}", first) for name, first in zip(self.names, self.firsts, strict=True)]
        return [*super().users_code(), (type(self.user).__name__, self.user), *made]

    def take(self, t: Any) -> list[Any]:
        """One tuple, as one thread takes it."""
        outputs: list[list[Any]] = []
        self.part = self.folded(self.part, (t,), outputs)
        return outputs[0] + self.passed(1)

    def folded(
        self,
        values: Values | None,
        rows: Sequence[Any],
        outputs: list[list[Any]],
        keep: Callable[[Any], Any] | None = None,
    ) -> Values:
        """The values of a block with more tuples in it; what each emits is appended, until one raises."""
        worker = copy.copy(self.user)
        held = vars(worker)
        held.update(values if values is not None else self.fresh())
        for t in rows:
            made = emitted(worker.process(t))
            outputs.append(list(made) if keep is None else [keep(output) for output in made])
        return {name: held[name] for name in self.names}

    def fresh(self) -> Values:
        """A copy that nothing was added to."""
        return {name: first() for name, first in zip(self.names, self.firsts, strict=True)}

    def passed(self, rows: int) -> list[Any]:
        """So many tuples more are in the block: merge what is full; what is emitted then."""
        self.count += rows
        self.timer_due = END if self.count % self.every else None
        if self.count % self.block:
            return []
        self.stretch, self.part = self.combined(self.stretch, self.part), None
        return [] if self.count % self.every else self._told()

    def flush(self, _: int) -> list[Any]:
        """The input has ended: what is emitted then."""
        self.timer_due = None
        self.stretch, self.part = self.combined(self.stretch, self.part), None
        return self._told()

    def _told(self) -> list[Any]:
        """The stretch is merged with all before it; what is emitted then."""
        self.total, self.stretch = self.combined(self.total, self.stretch), None
        worker = copy.copy(self.user)
        vars(worker).update(self.total if self.total is not None else self.fresh())
        return list(emitted(worker.result()))

    def combined(self, one: Values | None, other: Values | None) -> Values | None:
        """What came earlier and what came later, as one."""
        if one is None or other is None:
            return one if other is None else other
        return {name: combine(one[name], other[name]) for name, combine in zip(self.names, self.combines, strict=True)}


def accumulate_logic(
    operator: Any,
    accumulators: Sequence[tuple[str, Callable[[], Any], Callable[[Any, Any], Any]]],
    block: int,
    every: int,
    commutative: bool,
    concurrency: Concurrency | None,
    has_time: bool,
    name: str,
) -> Keyed:
    """The operator of some accumulators; `has_time`: of a stream with event time, whose end is that of its time."""
    names = tuple(each for each, _, _ in accumulators)
    order = "in any order: declared commutative" if commutative else "in the order of positions"
    prototype = configured(
        Accumulate,
        name,
        user=operator,
        names=names,
        firsts=tuple(first for _, first, _ in accumulators),
        combines=tuple(combine for _, _, combine in accumulators),
        block=block,
        every=every,
        commutative=commutative,
        concurrency=concurrency,
        description=f"{', '.join(names)}: one copy per {block:,} positions, merged every {every:,}, {order}",
        functions=tuple(
            UserFunction(f"the merge of {each}", combine, (each, each), each) for each, _, combine in accumulators
        ),
        load="CL",
    )
    held = fields(count=0, part=None, stretch=None, total=None, timer_due=None, timer_since=None)
    return Keyed(prototype, "take", held, timed="flush", by_clock=not has_time)


def accumulation_of(logic: Any) -> Accumulate | None:
    """The accumulators of an operator, if that is what it is."""
    found = getattr(logic, "prototype", None)
    return found if isinstance(found, Accumulate) else None
