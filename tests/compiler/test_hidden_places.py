"""What is unknown never runs as if it kept nothing: wherever that is, it is kept, or refused at the start."""

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
