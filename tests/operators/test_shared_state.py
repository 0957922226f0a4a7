"""State that two operators share: one key, one owner, whatever the channels."""

import os
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.testing import ParallelRun, run_parallel, run_sequential
from tests.event_time.timed_programs import cuts, rows
from tests.restless import restless_output

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "0")) or 8
LOGINS, ORDERS = "who long, ok boolean", "who long, amount long"


class Logins(ab.Operator):
    failed: int = ab.state(default=0)
    seen: list = ab.state(factory=list)
    mine: int = ab.state(default=0)

    def process(self, t):
        self.mine += 1
        self.failed = 0 if t.ok else self.failed + 1
        self.seen.append(self.mine)
        if self.failed > 2:
            yield (t.who, self.failed, len(self.seen))


class Orders(ab.Operator):
    limit: int = 1
    failed: int = ab.state(default=0)
    seen: list = ab.state(factory=list)
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.amount
        self.seen.append(-t.amount)
        if self.failed > self.limit:
            yield (t.who, self.total + sum(self.seen))
            self.failed -= 1


def program(logins, orders, one_source=False):
    first, second = from_epochs(logins, LOGINS), from_epochs(orders, ORDERS)
    if one_source:
        both = from_epochs(orders, ORDERS)
        first = both.filter(lambda t: t.amount % 2 == 0).map(lambda t: (t.who, t.amount % 4 == 0), schema=LOGINS)
        second = both
    warned, doubtful = ab.share(
        (first, Logins(), "who long, failed long, seen long"), (second, Orders(), ORDERS), by="who"
    )
    return warned, doubtful


logins = st.lists(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12), min_size=1, max_size=3)
orders = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12), min_size=1, max_size=3)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), logins=logins, orders=orders, channels=st.integers(1, 8), one_source=st.booleans())
def test_each_sees_what_the_other_left(tmp_path_factory, data, logins, orders, channels, one_source):
    warned, doubtful = program(logins, orders, one_source)
    for stream in (warned, doubtful, warned.map(lambda t: (t.who, -t.failed), schema=ORDERS).union(doubtful)):
        expected = stream.run_sequential()
        assert run_parallel(stream, channels=channels) == expected
    assert restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint"))) == expected


def test_it_is_what_a_plain_program_does():
    stream = program([[(1, False), (1, False), (2, True)]], [[(1, 5), (2, 7), (1, 1), (1, 2)]])[1]
    # Both failures of 1 came first; each order takes one of them back.
    assert stream.run_sequential() == [(1, 5 + 1 + 2 - 5)]


def test_its_state_is_kept_once_and_can_be_read(tmp_path):
    from anabranch.state.files import LocalFiles
    from anabranch.state.reader import CheckpointReader

    run = ParallelRun(list(program([[(1, False)]], [[(1, 5), (2, 3)]])), str(tmp_path), channels=3)
    run.run_epochs()
    reader = CheckpointReader(LocalFiles(f"{tmp_path}/anabranch"))
    assert reader.value("share", 1) == {"failed": 1, "seen": [1, -5], "mine": 1, "total": 5}
    assert reader.value("share", 2) == {"failed": 0, "seen": [-3], "mine": 0, "total": 3}


class Forgets(ab.Operator):
    """Failures are forgotten some time after the last."""

    failed: int = ab.state(default=0)

    def process(self, t):
        self.failed += 1
        for due in self.timers.pending:
            self.timers.cancel(due)
        self.timers.at(t.at + 4)

    def on_timer(self, time):
        yield (-1, time, self.failed)
        self.failed = 0


class Reminds(ab.Operator):
    """Has timers of its own, for the same times among them, and for times that have passed."""

    failed: int = ab.state(default=0)
    last: int = ab.state(default=0)

    def process(self, t):
        self.last = t.x
        self.timers.at(t.at + t.x)
        if self.failed > 1:
            yield (t.k, t.at, self.failed)

    def on_timer(self, time):
        if self.last == 3:
            raise ValueError(time)
        yield (self.last, time, self.failed)
        if self.last % 2:
            self.last += 1
            self.timers.at(time + 2)

    def on_end(self):
        yield (-2, self.last, self.failed)


EVENTS = "k long, at long, x long"
KEYS = {
    "k": "k",
    "computed": lambda t: t.k // 2,
    "named": ab.key(lambda t: (t.k % 2, str(t.k // 2)), "a long, b string"),
}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(), by=st.sampled_from(sorted(KEYS)), channels=st.integers(1, 8), policy=st.sampled_from(["skip", None])
)
def test_timers_are_an_operators_own_and_see_what_is_shared(tmp_path_factory, data, by, channels, policy):
    tuples = [each if policy else (*each[:2], each[2] % 3) for each in data.draw(rows(25))]
    built = []
    for epochs in ([tuples], data.draw(cuts(tuples))):
        source = from_epochs(epochs, EVENTS).event_time("at", 2)
        source = source.on_error(policy) if policy else source
        one, other = source.split(lambda t: t.x % 2 == 1)
        forgotten, reminded = ab.share((one, Forgets(), EVENTS), (other, Reminds(), EVENTS), by=KEYS[by])
        built.append(reminded.union(forgotten))
    expected = built[0].run_sequential(ends=True)
    assert built[1].run_sequential(ends=True) == expected
    assert run_parallel(built[1], channels=channels, ends=True) == expected
    assert restless_output(data, built[1], str(tmp_path_factory.mktemp("checkpoint")), ends=True) == expected


def test_of_one_time_the_operator_named_first_is_called_first():
    source = from_epochs([[(1, 10, 4), (1, 11, 3), (1, 11, 4)], [(1, 100, 0)]], EVENTS).event_time("at")
    one, other = source.split(lambda t: t.x == 3)
    streams = ab.share((one, Forgets(), EVENTS), (other, Reminds(), EVENTS), by="k")
    # Both have a timer at 15, and what the first forgets then the second no longer sees.
    assert run_sequential(streams) == [[(-1, 15, 1)], [(0, 14, 1), (0, 15, 0), (0, 100, 0)]]
    both = streams[1].union(streams[0])
    assert both.run_sequential() == run_parallel(both, channels=3) == [(0, 14, 1), (-1, 15, 1), (0, 15, 0), (0, 100, 0)]


class Other(ab.Operator):
    failed: int = ab.state(default=7)

    def process(self, t):
        yield t


class Marks(Orders):
    def on_punctuation(self):
        yield (1, 2)


class Ruled(Orders):
    rules: int = ab.broadcast(default=0)

    def on_broadcast(self, t):
        self.rules += 1


class Stray(Orders):
    def process(self, t):
        self.lost = 3


KEPT = []


class Keeps(Orders):
    def process(self, t):
        KEPT.append(t.who)


class Note(NamedTuple):
    text: str


class Notes(ab.Operator):
    note: Note | None = ab.state(default=None)

    def process(self, t):
        self.note = Note(f"{t.who}" + ("" if self.note is None else self.note.text))


class Reads(ab.Operator):
    note: Note | None = ab.state(default=None)

    def process(self, t):
        yield (len(self.note.text) if self.note else 0, t.amount)


def test_what_is_shared_may_be_of_the_users_classes():
    both = from_epochs([[(1, 2), (2, 3)], [(1, 4)], [(1, 5)]], ORDERS)
    stream = ab.share((both, Notes(), ORDERS), (both, Reads(), ORDERS), by="who")[1]
    assert run_parallel(stream, channels=2) == stream.run_sequential() == [(1, 2), (1, 3), (2, 4), (3, 5)]


class Apart(ab.Operator):
    own: int = ab.state(default=0)

    def process(self, t):
        yield t


def test_what_cannot_be_shared_is_refused_with_the_reason():
    first, second = ab.from_rows([], LOGINS), ab.from_rows([(1, 2)], ORDERS)
    for other, text in [
        (Other(), "begin with the same default"),
        (Marks(), "has on_punctuation, and the streams"),
        (Ruled(), "has broadcast state, which belongs to no key"),
        (Apart(), "nothing is shared"),
        (lambda t: t, "instance of an ab.Operator"),
    ]:
        with pytest.raises(ProgramError, match=text):
            ab.share((first, Logins(), ORDERS), (second, other, ORDERS), by="who")
    with pytest.raises(ProgramError, match="one shares nothing"):
        ab.share((first, Logins(), ORDERS), by="who")
    with pytest.raises(SchemaError, match="not a column"):
        ab.share((first, Logins(), ORDERS), (second, Orders(), ORDERS), by="amount")
    with pytest.raises(SchemaError, match="in one stream and"):
        ab.share((first, Logins(), ORDERS), (ab.from_rows([], "who string, amount long"), Orders(), ORDERS), by="who")
    with pytest.raises(ProgramError, match=r"Keeps.process\(\) keeps something beside .* KEPT"):
        ab.share((first, Logins(), ORDERS), (second, Keeps(), ORDERS), by="who")[1].plan()
    stream = ab.share((first, Logins(), ORDERS), (second, Stray(), ORDERS), by="who")[1]
    with pytest.raises(OperatorError, match=r"changed self.lost"):
        stream.run_sequential()
    with pytest.raises(ProgramError, match=r"assigns self.lost"):
        run_parallel(stream)
