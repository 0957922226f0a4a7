"""What the compiler sees of the library's operators: models, chains, and the user's functions inside them."""

import dataclasses

import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch import agg, count, delta, event_time, punctuation, sliding, step, time, tumbling
from anabranch.errors import ProgramError
from anabranch.papers.safe_plan import safe_plan
from anabranch.program.calling import Instances, emitted
from anabranch.program.graph import Keyed, named, upstream
from anabranch.program.model import Input, Output, Selectivity, State
from anabranch.state.codec import decode, encode

COLUMNS = "k string, l string, at long, x double"
ONE, SOME, MANY = Selectivity.ONE, Selectivity.AT_MOST_ONE, Selectivity.ANY


def source(rows=(), name=None):
    return ab.from_rows(rows, COLUMNS, name=name)


def table():
    return ab.from_rows([("a", 5), ("b", 6)], "id string, y long", name="table")


TIMES = [0, 1, 3, 2, 5, 6, 3, 9, 12, 11] * 5
ROWS = list(zip("aababbaaabaabbab" * 3, "xyxxyx" * 8, TIMES[:48], map(float, range(48)), strict=True))

custom = agg.custom(list, lambda a, x: [*a, x], len, "long", "x")
pattern = [step("one", lambda t: t.at > 3), step("two", lambda t, m: t.at > m.one[0].at).one_or_more()]

OPERATORS = {
    "tumbling count": (lambda s: s.aggregate(by="k", window=tumbling(2), n=agg.count()), SOME, {"k"}),
    "tumbling delta": (lambda s: s.aggregate(by="k", window=delta("at", 2), y=custom), SOME, {"k"}),
    "time": (lambda s: s.aggregate(by="k", window=time(2), y=agg.collect("x")), MANY, {"k"}),
    "punctuation": (lambda s: s.aggregate(by="k", window=punctuation(), y=agg.avg("x")), MANY, {"k"}),
    "event time": (lambda s: s.aggregate(by="k", window=event_time("at", 2), y=agg.min("x")), MANY, {"k"}),
    "sliding": (lambda s: s.aggregate(by="k", window=sliding(2), y=agg.sum("x"), n=agg.count()), ONE, {"k"}),
    "sliding by twos": (lambda s: s.aggregate(by="k", window=sliding(3, 2), y=custom), SOME, {"k"}),
    "sliding, dropping": (
        lambda s: s.aggregate(by="k", window=sliding(2), n=agg.count(), null_key="drop"),
        SOME,
        {"k"},
    ),
    "sliding event time": (
        lambda s: s.aggregate(by="k", window=sliding(event_time("at", 4), 2), y=agg.last("x")),
        MANY,
        {"k"},
    ),
    "sliding time": (
        lambda s: s.aggregate(by="k", window=sliding(time(4), time(2)), y=agg.first("x"), n=agg.sum("at")),
        MANY,
        {"k"},
    ),
    "sort": (lambda s: s.sort("x", window=count(2), key="k"), MANY, {"k"}),
    "sort by delta": (lambda s: s.sort("at", window=delta("at", 2), key="k"), MANY, {"k"}),
    "sort by punctuation": (lambda s: s.sort("x", window=punctuation(), key="k"), MANY, {"k"}),
    "deduplicate": (lambda s: s.deduplicate(by="k"), SOME, {"k", "l", "at", "x"}),
    "deduplicate within": (lambda s: s.deduplicate(by="k", within=delta("at", 2)), SOME, {"k", "l", "at", "x"}),
    "match": (lambda s: s.match(by="k", pattern=pattern, within=count(4)), SOME, {"k"}),
    "match relaxed": (
        lambda s: s.match(
            by="k", pattern=pattern, contiguity="relaxed", emit=lambda m: (m.one[0].k,), schema="k string"
        ),
        MANY,
        set(),
    ),
    "join": (lambda s: s.join(table(), by=("k", "id"), window=count(2), how="outer"), MANY, {"k"}),
    "enrich": (lambda s: s.enrich(table(), by=("k", "id")), MANY, {"k"}),
    "combine": (lambda s: s.combine(source(ROWS, "other"), on="at", by="k"), MANY, {"k"}),
}
PUNCTUATED = {"punctuation", "sort by punctuation"}


def built(name, rows=()):
    stream = source(rows)
    if name in PUNCTUATED:
        stream = stream.punctuate(lambda t: t.at % 3 == 0)
    return OPERATORS[name][0](stream)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_a_model_that_says_what_it_does(name):
    _, selectivity, forwards = OPERATORS[name]
    stream = built(name)
    found = stream.plan().operator(stream._node.name)
    assert found.model.state.value is State.PARTITIONED and "for each k" in found.model.state.reason
    assert found.model.key.columns == ("k",) and found.model.case == 1
    assert found.model.selectivity.value is selectivity
    assert set(found.model.forwarding.value) == forwards
    expecting = Input.EXPECTING if name in PUNCTUATED else Input.OBLIVIOUS
    assert set(found.model.inputs.value) == {expecting}
    assert found.model.output.value is Output.PRESERVES
    assert found.chain is not None
    paper = safe_plan(named([stream._node]))
    in_paper = paper.operator(found.name).region is not None
    assert in_paper == (len(stream._node.inputs) == 1), "in the paper a region has one entry"


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in ("match relaxed",)])
def test_operators_with_the_key_of_the_operator_before_share_its_chain(name):
    stream = built(name)
    after = stream.aggregate(by="k", window=tumbling(2), m=agg.count(), name="after")
    plan = after.plan()
    chains = [chain.operators for chain in plan.chains]
    mine = stream._node.name
    if len(stream._node.inputs) > 1:
        assert chains == [(mine, "after")]
    else:
        assert chains == [(*(("punctuate",) if name in PUNCTUATED else ()), mine, "after")]
        assert plan.chains[0].key == ("k",)


def test_an_operator_by_another_key_begins_a_chain():
    stream = source().deduplicate(by="k").sort("x", window=count(2), key="l")
    assert [chain.operators for chain in stream.plan().chains] == [("deduplicate",), ("sort",)]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.aggregate(by=None, window=tumbling(2), n=agg.count()),
        lambda s: s.sort("x", window=count(2)),
        lambda s: s.match(by=None, pattern=pattern),
        lambda s: s.combine(source(name="other"), on="at"),
    ],
)
def test_without_a_key_an_operator_is_sequential_and_says_what_to_do(build):
    stream = build(source())
    found = stream.plan().operator(stream._node.name)
    assert found.chain is None and found.model.state.value is State.UNKNOWN
    assert "has no key" in found.blocked and "by=…" in found.remedy


def test_a_window_over_punctuations_needs_some():
    with pytest.raises(ProgramError, match=r"aggregate \(.*expects a punctuated stream.*put punctuate"):
        source().aggregate(by="k", window=punctuation(), n=agg.count()).plan()


def test_an_explanation_gives_the_reason(capsys):
    source().aggregate(by="k", window=sliding(count(3), every=2), n=agg.count()).explain()
    shown = capsys.readouterr().out
    assert "aggregate keeps its state for each k" in shown and "test_operator_models.py:" in shown


def test_an_explanation_says_what_was_asked_for(capsys):
    def does(stream):
        stream.explain()
        lines = capsys.readouterr().out.splitlines()
        return [line.split(maxsplit=1)[1] for line in lines if line.split(maxsplit=1)[:1] == ["does"]]

    assert does(source().aggregate(by="k", window=sliding(count(3), every=2), n=agg.count())) == [
        "sliding(count(3), every=count(2)): n=count()"
    ]
    assert does(source().deduplicate(by="k")) == ["for ever"]
    assert does(source().filter(lambda t: True)) == []


# -- the user's functions ------------------------------------------------------------------------------------------

seen: list = []
counts: dict = {}


def remembers(*arguments):
    seen.append(arguments[-1])
    return (1,)


def look_and_remember(t):
    seen.append(t.k)
    return True


def look_and_count(t):
    counts[t.k] = counts.get(t.k, 0) + 1
    return counts[t.k] > 2


def compare_and_remember(t, m):
    seen.append(t)
    return len(m.one) < 2


def add_and_remember(a, x):
    seen.append(x)
    return a


WRITERS = {
    "a custom aggregation": lambda s: s.aggregate(
        by="k", window=tumbling(2), y=agg.custom(list, add_and_remember, len, "long", "x")
    ),
    "a condition": lambda s: s.match(by="k", pattern=step("one", look_and_remember)),
    "a condition with state": lambda s: s.match(by="k", pattern=step("one", look_and_count)),
    "a condition that looks back": lambda s: s.match(by="k", pattern=step("one", compare_and_remember)),
    "a split": lambda s: s.split(look_and_remember)[0],
    "a route": lambda s: s.route(look_and_remember, 2)[0],
    "a punctuate": lambda s: s.punctuate(look_and_remember),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_function_that_remembers_keeps_its_operator_sequential(name):
    plan = WRITERS[name](source()).plan()
    blocked = [operator for operator in plan.operators if "seen" in operator.blocked or "counts" in operator.blocked]
    assert len(blocked) == 1 and blocked[0].chain is None, plan.explain()


def test_functions_that_only_look_at_their_arguments_do_no_harm():
    stream = source().split(lambda t: t.at > 3)[0].aggregate(by="k", window=tumbling(2), y=custom)
    plan = stream.match(by="k", pattern=step("one", lambda t, m: t.y > len(m.tuples))).plan()
    assert {operator.model.is_safe for operator in plan.operators[1:]} == {True}
    assert [chain.operators[-1] for chain in plan.chains] == ["match"]


def test_a_function_that_reads_what_another_operator_changes_is_not_run_apart_from_it():
    limits = {}

    def learn(t):
        limits[t.k] = t.x
        return t

    def known(t):
        return t.k in limits

    for build in (
        lambda s: s.match(by="k", pattern=step("one", known)),
        lambda s: s.split(known)[0],
        lambda s: s.punctuate(known),
    ):
        plan = build(source().process(learn, schema=COLUMNS)).plan()
        assert not plan.operator("learn").model.is_safe
        assert "shares limits with learn" in plan.explain()


# -- the protocol --------------------------------------------------------------------------------------------------


class Kept:
    """An operator as the runtime drives it: between two calls its state is bytes, and so is the operator."""

    def __init__(self, node):
        rest = dataclasses.replace(node.logic)
        self.logic: Keyed = cloudpickle.loads(cloudpickle.dumps(rest))
        self.node = dataclasses.replace(node, logic=self.logic)
        self.instances = Instances(self.node)
        self.states: dict = {}

    def call(self, key, method, *arguments):
        held = self.states.get(key)
        instance = self.instances.new() if held is None else self.instances.restored(decode(held))
        found = [
            self.node.schema.exact_row(self.node.schema.unpack(each))
            for each in emitted(getattr(instance, method)(*arguments))
        ]
        self.states[key] = encode(self.instances.values(instance))
        return found, bool(self.logic.waiting) and getattr(instance, self.logic.waiting)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_needs_nothing_but_its_state(name):
    """Its state written and read back between any two tuples, by the bytes of a checkpoint, changes nothing."""
    stream = built(name, ROWS)
    node = stream._node
    kept = Kept(node)
    sources = [each for each in upstream(node) if not each.inputs]
    rows = {each.name: each.logic.origin.epochs[0] for each in sources}
    inputs = [rows[next(s.name for s in upstream(each) if not s.inputs)] for each in node.inputs]
    found, waiting = [], {}
    order = [
        (place, row) for place, part in sorted(enumerate(inputs), key=lambda p: _declared(node, p[0])) for row in part
    ]
    for place, row in order:
        schema = node.inputs[place].schema
        t = schema.exact_row(schema.unpack(row))
        key = tuple(t[column] for column in node.key_of(place))
        emitted_now, waits = kept.call(key, kept.logic.method_of(place), t)
        found += emitted_now
        waiting = {**waiting, key: waiting.get(key, len(waiting))} if waits else _without(waiting, key)
        if kept.logic.punctuated and t.at % 3 == 0:
            for each in list(waiting):
                emitted_now, waits = kept.call(each, kept.logic.punctuated)
                found += emitted_now
                waiting = waiting if waits else _without(waiting, each)
    assert [repr(row) for row in found] == [repr(row) for row in stream.run_sequential()]
    if name in ("time", "sliding time"):
        assert all(kept.call(key, kept.logic.ticked, 2000)[0] for key in list(kept.states))
    else:
        assert found, "the rows must show something"


def _declared(node, place):
    """Sources feed an epoch in the order of their declaration."""
    return next(each.id for each in upstream(node.inputs[place]) if not each.inputs)


def _without(waiting, key):
    return {each: since for each, since in waiting.items() if each != key}
