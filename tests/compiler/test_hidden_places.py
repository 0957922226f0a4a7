"""What is unknown never runs as if it kept nothing: wherever that is, it is kept, or refused at the start."""

import functools
import math
import types

import pytest

import anabranch as ab
from tests.compiler import elsewhere
from tests.compiler.hidden_places import PLACES
from tests.compiler.product_path import compare, sequential

ROWS = [(n, "abc"[n % 3]) for n in range(20)]
#: Refused before anything starts: where they keep something no copy leads to, or it cannot be kept.
REFUSED = {
    "ReplacesAStaticMethod",
    "IsABorg",
    "TwoWithOneDict",
    "through_sys_modules",
    "through_globals",
    "through_import",
    "through_its_own_globals",
    "through_eval",
    "through_gc",
    "InGetattribute",
    "shared_list_iterator",
    "shared_cycle",
    "shared_generator",
    "HasAGenerator",
    "time_zone_that_counts",
    "HasACountedProperty",
    "KeepsWeakly",
    "thread_local",
    "context_variable",
    "environment",
    "single_dispatch",
    "DispatchedMethod",
    "member_of_an_enumeration",
    "CustomCopy",
    "CustomReduce",
    "KnowsItsSubclasses",
    "logging_handler",
}
#: Stopped at the end of the first epoch, with nothing written: it is kept only then.
#: What a run on one thread cannot set back: what belongs to the process, and iterators that cannot be copied.
LEFT = {
    *("through_sys_modules", "through_globals", "through_import", "through_its_own_globals", "through_eval"),
    *("shared_cycle", "shared_generator", "thread_local", "context_variable", "environment", "KnowsItsSubclasses"),
    *("InGetattribute", "HasAGenerator"),
}


@pytest.mark.parametrize("name", PLACES)
def test_state_in_hidden_places_is_kept_or_refused(name):
    stream = ab.from_rows(ROWS, "x long, k string", rows_per_epoch=6)
    program = stream.map(PLACES[name](), schema="x long, n long")
    found = compare(program)
    if name in REFUSED:
        assert found.verdict == "refused", found.difference
        assert "To change that: " in found.parallel[0].refused or "eep " in found.parallel[0].refused
    else:
        assert found.verdict == "equal", found.difference
    assert name in LEFT or sequential([program]) == found.sequential, "a sequential run left something behind"


def module_closed_over():
    settings = types.ModuleType("settings")
    settings.n = 0

    def numbered(t):
        settings.n += 1
        return t.x, settings.n

    return numbered


def module_in_an_attribute():
    class Numbered:
        def __init__(self):
            self.settings = types.ModuleType("settings")
            self.settings.n = 0

        def __call__(self, t):
            self.settings.n += 1
            return t.x, self.settings.n

    return Numbered()


def dict_of_a_module():
    settings = types.ModuleType("settings")
    settings.seen = {}

    def seen(t):
        settings.seen[t.k] = settings.seen.get(t.k, 0) + 1
        return t.x, settings.seen[t.k]

    return seen


def module_imported_in_a_factory():
    import math as numbers

    def numbered(t):
        numbers.noted_here = getattr(numbers, "noted_here", 0) + 1
        return t.x, numbers.noted_here

    return numbered


def module_by_a_detour():
    settings = types.ModuleType("settings")
    settings.seen = []

    def seen(t):
        found = functools.partial(lambda held: held, settings)()
        found.seen.append(t.x)
        return t.x, len(found.seen)

    return seen


@pytest.mark.parametrize(
    "make",
    [module_closed_over, module_in_an_attribute, dict_of_a_module, module_imported_in_a_factory, module_by_a_detour],
    ids=lambda make: make.__name__,
)
def test_what_a_module_holds_belongs_to_no_operator_whatever_leads_to_the_module(make):
    stream = ab.from_rows(ROWS, "x long, k string", rows_per_epoch=6)
    found = compare(stream.map(make(), schema="x long, n long"))
    assert found.verdict == ("stopped" if make is module_by_a_detour else "refused"), found.difference
    told = found.parallel[0].refused or found.parallel[0].error
    assert "could not be kept" in told or "settings.seen was changed" in told
    vars(math).pop("noted_here", None)


class ReadsAnotherModule:
    """It cannot be followed (`vars`), and has a table in another module."""

    def __call__(self, t):
        return t.x, len(vars(self)) + elsewhere.TABLE[t.k]


class ChangesAnotherModule:
    def __call__(self, t):
        elsewhere.note(vars(self), t.k)
        return t.x, elsewhere.TABLE[t.k]


def test_what_is_named_in_another_module_may_be_read_but_not_changed():
    stream = ab.from_rows(ROWS, "x long, k string", rows_per_epoch=6)
    assert compare(stream.map(ReadsAnotherModule(), schema="x long, n long")).verdict == "equal"
    found = compare(stream.map(ChangesAnotherModule(), schema="x long, n long"))
    assert found.verdict in ("refused", "stopped"), found.difference
    assert elsewhere.TABLE == {"a": 1, "b": 2, "c": 3}
