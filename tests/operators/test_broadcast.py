"""Broadcast state: what a key sees is a function of the position, in however many channels it is."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.worker import exchange
from anabranch.errors import CheckpointError, OperatorError, ProgramError, StateError
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import Harness, ParallelRun, run_parallel
from tests.restless import restless_output

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "0")) or 10
PAYMENTS = "k long, kind string, x long"
RULES = "kind string, limit long"


class Alerts(ab.Operator):
    """Tells tuples above the limit of their kind, with how many of the key came and how many rules there are."""

    seen: int = ab.state(default=0)
    rules: list = ab.state(default=None)
    limits: dict = ab.broadcast(factory=dict)
    told: int = ab.broadcast(default=0)

    def on_broadcast(self, rule):
        if rule.limit < 0:
            self.limits.pop(rule.kind, None)
        else:
            self.limits.setdefault(rule.kind, []).append(rule.limit)
        self.told += 1

    def process(self, t):
        self.seen += 1
        if self.rules is None:
            self.rules = self.limits.get(t.kind)  # as it was when the key came
        if t.x > max(self.limits.get(t.kind, [3])):
            yield (t.k, t.kind, self.seen * 1000 + self.told * 10 + len(self.rules or ()))


class Patient(Alerts):
    """The same, told a while later, in the words of then."""

    waits: int = 4

    def process(self, t):
        self.seen += t.x
        self.rules = [t.k]
        self.timers.at(t.x + self.waits)

    def on_timer(self, time):
        yield (self.rules[0], str(len(self.limits)), self.told * 100 + self.seen)


class Marked(Alerts):
    def on_punctuation(self):
        yield (self.seen, "mark", self.told)


payments = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.integers(0, 9)), max_size=25)
rules = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 8)), max_size=6)


@st.composite
def programs(draw):
    epochs = draw(st.integers(1, 4))
    tuples = [draw(payments) for _ in range(epochs)]
    told = [draw(rules) for _ in range(draw(st.integers(0, epochs)))]
    pay, rule = (from_epochs(tuples, PAYMENTS), from_epochs(told or [[]], RULES))
    if draw(st.booleans()):  # which of the sources is declared first decides who comes first in an epoch
        rule, pay = from_epochs(told or [[]], RULES), from_epochs(tuples, PAYMENTS)
    shape = draw(st.sampled_from(["plain", "timers", "marks", "one source", "keyed before", "computed", "policy"]))
    behind = draw(st.booleans())
    if shape == "one source":
        both = from_epochs([[(k, kind, x) for k, kind, x in each] for each in tuples], PAYMENTS)
        one, other = both.split(lambda t: t.x % 3 == 0)
        rule, pay = one.map(lambda t: (t.kind, t.k - 1), schema=RULES), other
    if shape == "keyed before":
        pay = pay.aggregate(by="kind", window=ab.count(2), k=ab.agg.max("k"), x=ab.agg.sum("x"))
        pay = pay.map(lambda t: (t.k, t.kind, t.x), schema=PAYMENTS)
        rule = rule.deduplicate(by="kind", within=ab.count(2))
    if shape == "timers":
        made = pay.event_time("x").process(Patient(), by="k", schema=PAYMENTS, broadcast=rule)
    elif shape == "marks":
        made = pay.punctuate(lambda t: t.x == 9).process(Marked(), by="k", schema=PAYMENTS, broadcast=rule)
    elif shape == "computed":
        made = pay.process(Alerts(), by=lambda t: t.k % 3, schema=PAYMENTS, broadcast=rule)
    elif shape == "policy":
        made = pay.process(Fragile(), by="k", schema=PAYMENTS, broadcast=rule, on_error="skip")
    else:
        made = pay.process(Alerts(), by="k", schema=PAYMENTS, broadcast=rule)
    return made.aggregate(by="kind", window=ab.count(2), k=ab.agg.sum("k"), x=ab.agg.sum("x")) if behind else made


class Fragile(Alerts):
    def process(self, t):
        yield from super().process(t)
        if t.x == 7:
            raise ValueError(t)


@settings(max_examples=2 * EXAMPLES, deadline=None, print_blob=True)
@given(stream=programs(), channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_in_parallel_every_key_sees_what_one_thread_shows_it(stream, channels, seed):
    assert run_parallel(stream, channels=channels, seed=seed) == stream.run_sequential()


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), stream=programs(), seed=st.integers(0, 999))
def test_it_is_the_same_behind_crashes_and_with_other_channels(tmp_path_factory, data, stream, seed):
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    assert restless_output(data, stream, checkpoint, seed) == stream.run_sequential()


def test_the_comparison_can_fail(monkeypatch):
    """If only one channel got the rules it would be found."""
    monkeypatch.setattr(exchange.Outbox, "_to_all", _to_first)
    stream = simple(Alerts(), [(k, "a", 9) for k in range(20)], [("a", 8)])
    assert run_parallel(stream, channels=4) != stream.run_sequential()


def _to_first(outbox, edge, order, payload):
    target = outbox._layout.stages[outbox._layout.steps[edge.target].stage]
    yield outbox._to(target, 0, order, payload)


def simple(operator, tuples, told):
    rule = ab.from_rows(told, RULES)
    return ab.from_rows(tuples, PAYMENTS).process(operator, by="k", schema=PAYMENTS, broadcast=rule)


class Assigns(Alerts):
    def process(self, t):
        self.told = 3


class Changes(Alerts):
    def process(self, t):
        self.limits[t.kind] = [t.x]


class Fails(Alerts):
    def on_broadcast(self, rule):
        return 1 // rule.limit and None


class Returns(Alerts):
    def on_broadcast(self, rule):
        return [rule]


class OfAKey(Alerts):
    def on_broadcast(self, rule):
        self.told = self.seen


class WritesOfAKey(Alerts):
    def on_broadcast(self, rule):
        self.seen += 1


class NotData(Alerts):
    def on_broadcast(self, rule):
        self.limits[rule.kind] = iter([1])


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (Assigns, OperatorError, "assigns self.told, which is broadcast state"),
        (Changes, StateError, "changed its broadcast state in place"),
        (Fails, OperatorError, "ZeroDivisionError"),
        (Returns, OperatorError, "expected nothing"),
        (OfAKey, StateError, "used self.seen, the state of a key"),
    ],
)
def test_what_may_not_be_is_refused_alike(kind, error, text):
    stream = simple(kind(), [(1, "a", 2), (2, "b", 3)], [("a", 0)])
    with pytest.raises(error, match=text) as alone:
        stream.run_sequential()
    with pytest.raises(error, match=text) as together:
        run_parallel(stream, channels=3)
    assert str(together.value).replace(", epoch 0", "") == str(alone.value)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (WritesOfAKey, "the state of a key", "on_broadcast: assigns self.seen"),
        (NotData, "cannot keep", "self.rules gets an iterator"),
    ],
)
def test_what_the_code_shows_is_refused_before_it_runs(kind, text, told):
    stream = simple(kind(), [(1, "a", 2)], [("a", 0)])
    with pytest.raises(StateError, match=text):
        stream.run_sequential()
    with pytest.raises(ProgramError, match=told):
        run_parallel(stream)


class Deaf(ab.Operator):
    def process(self, t):
        yield t


class Yields(Alerts):
    def on_broadcast(self, rule):
        yield rule


def test_programs_that_make_no_sense_are_refused_when_they_are_built():
    pay, rule = ab.from_rows([], PAYMENTS), ab.from_rows([], RULES)
    for operator, given_, text in [
        (Alerts(), {"by": "k"}, "say which stream changes it"),
        (Deaf(), {"by": "k", "broadcast": rule}, "has no method on_broadcast"),
        (Yields(), {"by": "k", "broadcast": rule}, "emits nothing"),
        (Alerts(), {"by": "k", "broadcast": [1]}, "expected a stream"),
        (Alerts(), {"broadcast": rule}, "with a key"),
    ]:
        with pytest.raises(ProgramError, match=text):
            pay.process(operator, schema=PAYMENTS, **given_)
    with pytest.raises(ProgramError, match="factory=dict"):
        ab.broadcast(default={})
    with pytest.raises(ProgramError, match="is state, not configuration"):
        Alerts(limits={})


def test_it_is_kept_once_and_a_program_without_it_is_refused(tmp_path):
    stream = simple(Alerts(), [(k, "a", 9) for k in range(9)], [("a", 4), ("b", 5)])
    run = ParallelRun(stream, str(tmp_path), channels=4)
    run.run_epochs()
    assert list(run.checkpoint.latest().facts.broadcasts) == ["Alerts"]
    reader = CheckpointReader(LocalFiles(f"{tmp_path}/anabranch"))
    assert reader.broadcast("Alerts") == {"limits": {"a": [4], "b": [5]}, "told": 2}
    first, *keys = reader.table("Alerts").to_pylist()
    assert (first["key"], first["key_group"], first["limits"], first["seen"]) == (
        None,
        None,
        "{'a': [4], 'b': [5]}",
        None,
    )
    assert len(keys) == 9 and all(row["seen"] == "1" and row["limits"] is None for row in keys)

    class Fewer(Alerts):
        limits = None

    Fewer.__name__ = "Alerts"
    other = simple(Fewer(), [], [])
    with pytest.raises(CheckpointError, match="its broadcast state no longer has limits"):
        ParallelRun(other, str(tmp_path), channels=2)


def test_an_operator_can_be_tried_alone():
    alone = Alerts()
    alone.limits = {"a": [5]}
    row = ab.Schema.of(PAYMENTS).row_class
    assert list(alone.process(row((1, "a", 6)))) == [(1, "a", 1001)]
    harness = Harness(Alerts(), PAYMENTS, by="k", schema=PAYMENTS, broadcast=RULES)
    harness.broadcast(("a", 5))
    assert harness.feed((1, "a", 6), (1, "a", 5)) == [(1, "a", 1011)]
