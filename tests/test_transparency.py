"""The three levels of state transparency, run as the compiler planned them, against the sequential run."""

import collections

import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_parallel
from tests.programs import COLUMNS, exact

EPOCHS = [[((n * k) % 5, "abc"[k % 3], float((n + k) % 7)) for k in range(30)] for n in range(4)]


class JumpByHand:
    """Case 2: ordinary code with its own dict; nobody named a key."""

    def __init__(self):
        self.stored = {}

    def __call__(self, t):
        if t.k not in self.stored or abs(t.x - self.stored[t.k]) > 2.0:
            self.stored[t.k] = t.x
            yield t


class CountsPairs:
    """Two dicts, one of them finer than the other, with defaults made on reading."""

    def __init__(self):
        self.by_key = collections.defaultdict(int)
        self.by_pair = collections.Counter()

    def __call__(self, t):
        self.by_key[t.k] += 1
        self.by_pair[t.k, t.s] += 1
        yield t.but(x=float(self.by_key[t.k] * 100 + self.by_pair[t.k, t.s]))


class EveryThird:
    """State that is not partitioned: one thread, and its attributes are kept."""

    def __init__(self):
        self.n = 0
        self.recent = []

    def __call__(self, t):
        self.n += 1
        self.recent = [*self.recent[-2:], t.x]
        if self.n % 3 == 0:
            yield t.but(x=sum(self.recent))


class KeepsMap(ab.Operator):
    """Case 3: the state API."""

    seen = ab.store()

    def process(self, t):
        self.seen.put(t.s, self.seen.get(t.s, 0) + 1)
        yield t.but(x=float(self.seen.get(t.s)))


TOTAL = {"n": 0}


def counts_globally(t):
    TOTAL["n"] += 1
    return TOTAL["n"] % 2 == 0


def counts_elsewhere(t):
    ab.counted = getattr(ab, "counted", 0) + 1
    return ab.counted % 2 == 0


def programs() -> dict[str, ab.Stream]:
    source = from_epochs(EPOCHS, COLUMNS)
    return {
        "case 2": source.process(JumpByHand()),
        "case 2, two dicts": source.process(CountsPairs()),
        "case 3": source.process(KeepsMap(), by="k"),
        "sequential": source.process(EveryThird(), schema=COLUMNS),
        "mixed": source.process(EveryThird(), schema=COLUMNS)
        .process(JumpByHand())
        .filter(lambda t: t.x < 9)
        .process(EveryThird(), schema=COLUMNS),
        "before and behind": source.process(JumpByHand())
        .process(EveryThird(), schema=COLUMNS)
        .process(KeepsMap(), by="s"),
    }


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("channels", [1, 4])
def test_parallel_equals_sequential(name, channels):
    stream = programs()[name]
    assert exact(run_parallel(stream, channels=channels, seed=channels)) == exact(stream.run_sequential())
    assert stream.run_sequential() == stream.run_sequential()  # a run leaves nothing behind for the next


def test_the_key_of_a_dict_is_found_and_only_what_must_be_sequential_is():
    planned = programs()

    def keys(name):
        layout = planned[name].plan().layout
        return [next(iter(stage.routes.values()), ()) for stage in layout.stages]

    assert keys("case 2") == [(), ("k",)]
    assert keys("case 2, two dicts") == [(), ("k",)]
    assert keys("before and behind") == [(), ("k",), (), ("s",)]
    sequential = planned["sequential"].plan().operators[-1]
    assert sequential.chain is None and "self.n" in sequential.blocked and sequential.remedy


@pytest.mark.parametrize("name", ["case 2, two dicts", "sequential"])
def test_such_state_is_kept_over_a_restart_with_other_channels(tmp_path, name):
    stream = programs()[name]
    first = ParallelRun(stream, str(tmp_path), channels=2)
    first.run_epochs(last=1)
    second = ParallelRun(stream, str(tmp_path), channels=3)
    second.run_epochs()
    assert exact(first.output + second.output) == exact(stream.run_sequential())


def test_state_in_globals_is_kept_in_one_channel():
    stream = from_epochs(EPOCHS, COLUMNS).filter(counts_globally)
    assert exact(run_parallel(stream)) == exact(stream.run_sequential())


def test_state_in_another_module_is_refused_with_what_to_do():
    stream = from_epochs(EPOCHS, COLUMNS).filter(counts_elsewhere)
    with pytest.raises(ProgramError, match=r"operator filter \(.*could not be kept.*To change that"):
        run_parallel(stream)


def test_declared_state_without_a_key_is_refused():
    with pytest.raises(ProgramError, match="name the key: by=…"):
        from_epochs(EPOCHS, COLUMNS).process(KeepsMap())
