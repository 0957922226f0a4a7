"""What state holds is the same in the next epoch, or it is refused: compared with one thread, on the product's path."""

import numpy as np
import pytest

import anabranch as ab
from tests.compiler.product_path import compare

ROWS = [("ab"[n % 2], (n * 37) % 101) for n in range(60)]
COLUMNS = "k string, y string"
CLOCKS = [1000 * n for n in range(9)]


class Array(ab.Operator):
    """An array whose cells lie by columns."""

    a = ab.state(default=None)

    def process(self, t):
        if self.a is None:
            self.a = np.asfortranarray(np.arange(6).reshape(2, 3))
        self.a[0, 0] = t.x
        yield t.k, f"{self.a.ravel(order='K').tolist()} {self.a.flags.f_contiguous}"


class OneArrayTwice(ab.Operator):
    a = ab.state(default=None)
    b = ab.state(default=None)

    def process(self, t):
        if self.a is None:
            self.a = np.zeros(4)
            self.b = self.a
        self.a[1] += 1
        yield t.k, str(self.b[1])


class View(ab.Operator):
    a = ab.state(default=None)
    b = ab.state(default=None)

    def process(self, t):
        if self.a is None:
            self.a = np.zeros(4)
            self.b = self.a[1:]
        self.a[1] += 1
        yield t.k, str(self.b[0])


class StoredTwice(ab.Operator):
    a = ab.store()
    b: list = ab.state(factory=list)

    def process(self, t):
        if not self.b:
            self.a.put("x", self.b)
        self.b.append(t.x)
        yield t.k, str(len(self.a.get("x")))


class ChangedInPlace(ab.Operator):
    a = ab.store()

    def process(self, t):
        if not self.a.has("x"):
            self.a.put("x", [])
        self.a.get("x").append(t.x)
        yield t.k, str(len(self.a.get("x")))


class WalkedInPlace(ab.Operator):
    a = ab.store()

    def process(self, t):
        if not self.a.has("x"):
            self.a.put("x", [])
        for key, values in self.a.items():
            values.append(t.x)
            yield t.k, f"{key} {len(values)}"


class Expiring(ab.Operator):
    a = ab.store(ttl=2.5)

    def process(self, t):
        if t.x % 3:
            self.a.put(t.x % 5, t.x)
        yield t.k, repr(list(self.a.items()))


KINDS = [Array, ChangedInPlace, WalkedInPlace, Expiring, OneArrayTwice, View, StoredTwice]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_kept_is_the_same_in_the_next_epoch(kind):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=7).process(kind(), by="k", schema=COLUMNS)
    found = compare(stream, ((1, 1), (3, 2)), CLOCKS)
    assert found.verdict == "equal", found.difference


def test_a_text_that_cannot_be_written_fails_also_where_a_filter_drops_it():
    stream = ab.from_rows(ROWS, "k string, x long").map(lambda t: (t.k, "\ud800" if t.x == 37 else "a"), COLUMNS)
    for program in (stream, stream.filter(lambda t: t.y == "a")):
        found = compare(program)
        assert found.verdict == "equal" and "surrogates not allowed" in found.sequential.error
