"""Large values that change a little are written as what changed; they are read back exactly, and merged in bounds."""

import collections
import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import StateError
from anabranch.state import deltas
from anabranch.state.codec import decode, encode
from anabranch.state.deltas import applied, combined, delta_of, is_delta
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.restless import restless_output

EXAMPLES = int(os.environ.get("ANABRANCH_GROWING_EXAMPLES", "10"))
COLUMNS = "k long, x long"
OUT = "k long, n long, s string"

items = st.one_of(st.integers(0, 2**40), st.text(max_size=9), st.tuples(st.integers(0, 9), st.floats(width=32)))


@st.composite
def chains(draw):
    """A large value, and the same after some changes each."""
    kind = draw(st.sampled_from([list, collections.deque, dict, collections.Counter, collections.OrderedDict]))
    start = draw(st.lists(items, min_size=1, max_size=30)) * 8
    mapping = issubclass(kind, dict)
    now = kind({f"k{n}": n for n in range(len(start))}) if mapping else kind(start)
    found = [encode(now)]
    for number in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(0, 3))):
            what = draw(st.sampled_from(["append", "drop", "change"]))
            if mapping:
                if what == "drop" and now:
                    now.pop(next(iter(now)))
                else:
                    now[f"k{draw(st.integers(0, 300))}"] = number
            elif what == "append":
                now.append(draw(items))
            elif what == "drop" and now:
                del now[0]
            elif now:
                now[draw(st.integers(0, len(now) - 1))] = draw(items)
        found.append(encode(now))
    return found


@settings(max_examples=20 * EXAMPLES, deadline=None)
@given(chains())
def test_a_delta_gives_the_value_and_several_are_one(cells):
    steps = []
    for before, now in itertools.pairwise(cells):
        found = delta_of(before, now)
        if found is None:
            steps = []
            start = now
            continue
        assert applied(found, before) == now
        if not steps:
            start = before
        steps.append(found)
        whole = steps[-1]
        for earlier in reversed(steps[:-1]):
            whole = combined(whole, earlier)
        assert is_delta(whole) and applied(whole, start) == now
        assert combined(whole, start) == now


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: list(range(2000)), lambda v: v.append(7)),
        (lambda: [f"item {n}" for n in range(2000)], lambda v: v.append("one more")),
        (lambda: collections.deque(range(2000), 2000), lambda v: v.append(70000)),
        (lambda: {n: n for n in range(2000)}, lambda v: v.__setitem__(5000, 1)),
        (lambda: collections.Counter(range(2000)), lambda v: v.update([990])),
        (lambda: {"a": list(range(2000)), "b": [1]}, lambda v: v["b"].append(7)),
        (lambda: list(range(65535)), lambda v: v.append(7)),  # the header grows
    ],
    ids=["list", "texts", "deque", "dict", "counter", "dict of lists", "header"],
)
def test_a_small_change_is_small(make, change):
    value = make()
    before = encode(value)
    change(value)
    found = delta_of(before, encode(value))
    assert found is not None and len(found) < 80
    assert decode(applied(found, before)) == value


def test_a_delta_of_something_else_is_known():
    value = list(range(2000))
    found = delta_of(encode(value), encode([*value, 1]))
    with pytest.raises(StateError, match="damaged"):
        applied(found, encode(value[::-1]))
    assert delta_of(encode([1]), encode([1, 2])) is None
    assert delta_of(encode(value), encode(value[::-1])) is None


class Growing(ab.Operator):
    """All that grows."""

    seen: list = ab.state(factory=list)
    last: object = ab.state(factory=lambda: collections.deque(maxlen=40))
    counts: object = ab.state(factory=collections.Counter)
    by_item: dict = ab.state(factory=dict)
    number: int = ab.state(default=0)

    def process(self, t):
        self.number += 1
        if t.x == 77:
            self.seen.clear()
        elif t.x == 78:
            del self.seen[: len(self.seen) // 2]
        elif t.x % 5 == 0 and self.seen:
            self.seen[t.x % len(self.seen)] = f"changed {self.number}"
        self.seen.append(f"item {t.x} {self.number}")
        self.last.append((t.x, self.number))
        self.counts[t.x] += 1
        self.by_item[f"{t.x} of {t.k}"] = self.number
        whole = f"{self.seen} {list(self.last)} {list(self.counts.items())[-2:]} {len(self.by_item)}"
        yield (t.k, len(self.seen), whole)


def growing(epochs):
    return from_epochs(epochs, COLUMNS).process(Growing(), by="k", schema=OUT, name="growing")


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data())
def test_what_grows_is_as_on_one_thread_with_crashes_and_rescalings(tmp_path_factory, data):
    """Values of all sizes, also those that are written whole, some keys silent for long."""
    rows = st.tuples(st.sampled_from([0, 0, 0, 1, 1, 2]), st.integers(0, 80))
    epochs = data.draw(st.lists(st.lists(rows, max_size=25), min_size=5, max_size=14))
    stream = growing(epochs)
    found = restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint")), last=13)
    assert found == stream.run_sequential()


def bytes_per_epoch(checkpoint, epochs, tuples=1):
    """What a key that gets some tuples each epoch writes, by epoch, when it has much already."""
    rows = [
        [(1, n) for n in range(3000)],
        *([(1, 10_000 + n * tuples + m) for m in range(tuples)] for n in range(epochs)),
    ]
    run = ParallelRun(from_epochs(rows, COLUMNS).process(Listing(), by="k", schema=COLUMNS), checkpoint, channels=1)
    run.run_epochs()
    assert run.output[-1].x == 3000 + epochs * tuples
    return [progress.state_bytes for progress in run.progress]


class Listing(ab.Operator):
    seen: list = ab.state(factory=list)

    def process(self, t):
        self.seen.append(f"item {t.x}")
        yield (t.k, len(self.seen))


def test_a_list_that_grows_is_not_written_whole_and_merges_are_bounded(tmp_path):
    first, *rest = bytes_per_epoch(str(tmp_path), 40)
    assert first > 30_000
    assert sum(rest) / len(rest) < first / 8, "an epoch writes what was added, and now and then a merge"
    records = CheckpointReader(LocalFiles(f"{tmp_path}/anabranch")).manifest.segments["Listing"]
    assert len(records) < 12
    reader = CheckpointReader(LocalFiles(f"{tmp_path}/anabranch"))
    assert len(reader.value("Listing", 1)["seen"]) == 3040


def test_the_comparison_can_fail(tmp_path, monkeypatch):
    """A delta that is applied wrongly is found."""
    monkeypatch.setattr(deltas, "applied", lambda delta, before: before)
    rows = [[(1, n) for n in range(100)], [(1, 7)], [(1, 8)]]
    stream = from_epochs(rows, COLUMNS).process(Listing(), by="k", schema=COLUMNS)
    run = ParallelRun(stream, str(tmp_path), channels=1)
    run.run_epochs()
    assert run.output != stream.run_sequential()
