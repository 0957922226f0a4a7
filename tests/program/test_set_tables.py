"""A set that is read back is gone through in the order of the one that was written, now and whatever comes next."""

import os
import pickle
import random
import subprocess
import sys

import pytest

from anabranch.errors import StateError
from anabranch.program.belongings import Belongings
from anabranch.program.object_graph import Prototype
from anabranch.program.set_tables import SetTable, fill, frozen, table_of
from anabranch.program.whole_copies import loaded, pickled_whole
from anabranch.state.codec import comparable, decode, encode

CASES = int(os.environ.get("ANABRANCH_SET_CASES", "400"))


def member(draw):
    """Numbers that want one place, whole and not, texts, tuples."""
    kind = draw.random()
    if kind < 0.5:
        return draw.randrange(draw.choice([10, 100, 5000])) << draw.choice([0, 0, 3, 9])
    if kind < 0.6:
        return draw.choice([draw.random(), 2 ** draw.randrange(60, 90), 2**61 - 1 - draw.randrange(3), -1, -2, 0.5])
    if kind < 0.8:
        return f"t{draw.randrange(300)}"
    return (draw.randrange(20), f"x{draw.randrange(5)}")


def history(draw, steps=None, start=None):
    """A set after steps that make it grow, shrink, lie sparsely and leave places behind."""
    found = set() if start is None else start
    for _ in range(draw.choice([3, 10, 40, 200]) if steps is None else steps):
        step = draw.random()
        if step < 0.6:
            found.add(member(draw))
        elif step < 0.75 and found:
            found.discard(draw.choice(list(found)))
        elif step < 0.85 and found:
            found.pop()
        elif step < 0.88:
            found |= {member(draw) for _ in range(draw.randrange(9))}
        elif step < 0.91:
            found -= {member(draw) for _ in range(draw.randrange(9))}
        elif step < 0.93:
            found.intersection_update([member(draw) for _ in range(50)] + list(found)[:9])
        elif step < 0.94:
            found.clear()
    return found


def frozen_history(draw):
    found, other = history(draw), history(draw)
    shuffled = draw.sample(list(found), len(found))
    ways = [found, shuffled, list(found), dict.fromkeys(found), found | other, found - other, found & other]
    made = frozenset(draw.choice(ways))
    return draw.choice([made, made, made | other, made - other, made.union(shuffled)])


def go_on(draw_seed, found):
    """The order, and the orders after more has happened to it."""
    draw = random.Random(draw_seed)
    seen = [list(found)]
    for _ in range(3):
        found = history(draw, 12, set(found) if isinstance(found, frozenset) else found)
        seen.append(list(found))
    while found and len(seen) < 12:
        seen.append(found.pop())
    return seen


COPIES = {
    "codec": lambda value: decode(encode(value)),
    "nested": lambda value: decode(encode([(1, {"a": value})]))[0][1]["a"],
    "pickle": lambda value: loaded(pickled_whole([value, value], None)[0])[1],
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("make", [history, frozen_history], ids=["set", "frozenset"])
def test_a_copy_goes_on_as_the_original(name, make):
    for seed in range(CASES // 4):
        value = make(random.Random(seed))
        copy = COPIES[name](value)
        assert copy == value and type(copy) is type(value)
        assert go_on(seed, copy) == go_on(seed, value), seed


class Holder:
    def __init__(self, values, frozen_values, odd):
        self.values, self.frozen, self.odd = values, frozen_values, odd
        self.again = {"values": values}


class OddSet(set):
    def __iter__(self):
        return iter(())


def test_an_object_that_is_taken_over_keeps_the_order_of_its_sets():
    for seed in range(CASES // 20):
        draw = random.Random(seed)
        holder = Holder(history(draw), frozen_history(draw), OddSet(history(draw)))
        prototype = Prototype(holder)
        first = prototype.fresh()
        history(random.Random(-seed), 30, first.target.values)
        second = prototype.fresh()
        second.fill(first.flatten())
        for one, other in ((holder, prototype.fresh().target), (first.target, second.target)):
            assert list(set.__iter__(one.odd)) == list(set.__iter__(other.odd))
            assert go_on(seed, one.frozen) == go_on(seed, other.frozen)
            assert other.again["values"] is other.values
            assert list(one.values) == list(other.values), seed
        assert go_on(seed, first.target.values) == go_on(seed, second.target.values)


def test_what_a_run_did_to_a_set_is_taken_back_with_its_order():
    for seed in range(CASES // 4):
        value = history(random.Random(seed))
        expected = decode(encode(value))
        before = Belongings([value])
        history(random.Random(seed + 1), 40, value)
        before.put_back()
        assert go_on(seed, value) == go_on(seed, expected), seed


def test_most_sets_need_no_table():
    assert table_of(set()) is None and table_of({1, 2, 3}) is None and table_of(frozenset((1, 2))) is None
    assert encode({3, 1}) == b"\x01\xc7\x03\x02\x92\x01\x03"


def test_equal_sets_are_comparable_whatever_their_order():
    one, other = {8, 0}, {0, 8}
    assert list(one) != list(other) and encode(one) != encode(other) and comparable(one) == comparable(other)


SCRIPT = """
import pickle, sys
from anabranch.state.codec import decode, encode
written = pickle.loads(sys.stdin.buffer.read())
found = [decode(each) for each in written]
sys.stdout.buffer.write(pickle.dumps([(list(one), encode(one) == each) for one, each in zip(found, written)]))
"""


def test_in_a_process_with_other_hashes_a_set_is_whole_and_has_an_order_of_that_process():
    texts = {f"t{n}" for n in range(50)}
    for n in range(20):
        texts.discard(f"t{n}")
    numbers = {n << 3 for n in range(50)} - {80, 160}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=pickle.dumps([encode(numbers), encode(texts)]),
        env={**os.environ, "PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        check=True,
    )
    of_numbers, (order, _) = pickle.loads(done.stdout)
    assert of_numbers == (list(numbers), True)
    assert set(order) == texts and len(order) == len(texts)


@pytest.mark.parametrize(
    "table",
    [
        SetTable(8, b"", b"", 0),
        SetTable(7, b"\0\0\0\0", b"", 0),
        SetTable(1 << 60, b"\0\0\0\0", b"", 0),
        SetTable(8, b"\0\0\0\0", b"", 1 << 50),
        SetTable(8, b"\0\0\0\0", b"", -1),
    ],
)
def test_a_damaged_table_is_refused(table):
    with pytest.raises(StateError, match="damaged"):
        fill(set(), [1], table)
    with pytest.raises(StateError, match="damaged"):
        frozen([1], table)


def test_a_table_that_is_not_that_of_the_members_gives_a_set_all_the_same():
    found = set()
    fill(found, [1, 2], SetTable(8, b"\5\0\0\0\6\0\0\0", b"\7\0\0\0", 3))
    assert found == {1, 2}
    assert frozen([1, 2], SetTable(8, b"\5\0\0\0\6\0\0\0", b"", 0)) == {1, 2}
