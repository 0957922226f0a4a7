"""Declarations, contradictions, sharing between operators, output schemas, rewriting."""

from __future__ import annotations

import collections
import functools

import pytest
from pyspark import cloudpickle

from anabranch.compiler.compile import compile_program
from anabranch.compiler.layout.analysis import analyse
from anabranch.compiler.models.inference import infer_output_schema
from anabranch.errors import ProgramError
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Process
from anabranch.program.model import Selectivity, State, model
from anabranch.program.schema import Schema
from tests.compiler.programs import SCHEMA, Builder


def node(logic, **more):
    b = Builder()
    return b.node("it", logic, b.source(), **more)


# -- declarations -----------------------------------------------------------------------------------------


def test_a_declaration_is_believed_where_the_code_cannot_be_followed():
    @model(state="stateless", selectivity="1:1", forwards="k")
    def opaque(t):
        return __import__("somewhere").convert(t)

    found = analyse(node(Process(opaque)))
    assert found.state.value is State.STATELESS and "declared" in found.state.reason
    assert found.selectivity.value is Selectivity.ONE
    assert found.forwards("k") == "k" and found.forwards("v") is None


def test_declared_stateless_but_writes_state_is_refused_with_operator_and_line():
    total = []

    @model(state="stateless")
    def writes(t):
        total.append(t.v)
        return t

    line = writes.__code__.co_firstlineno + 2
    with pytest.raises(
        ProgramError, match=rf"it \(program.py:20\): declared stateless, but it writes total at .*:{line}"
    ):
        analyse(node(Process(writes)))


def test_declared_stateless_but_keeps_dicts_is_refused():
    counts = {}

    @model(state="stateless")
    def counting(t):
        counts[t.k] = counts.get(t.k, 0) + 1
        return t

    with pytest.raises(ProgramError, match=r"declared stateless, but it keeps state \(counts is always indexed with k"):
        analyse(node(Process(counting)))


def test_declared_1_1_but_drops_tuples_is_refused():
    @model(selectivity="1:1")
    def drops(t):
        if t.v > 0:
            yield t

    with pytest.raises(ProgramError, match="declared 1:1, but there is a path that emits nothing"):
        analyse(node(Process(drops)))


def test_declared_at_most_one_but_emits_two_is_refused():
    @model(selectivity="1:[0,1]")
    def doubles(t):
        yield t
        yield t

    with pytest.raises(ProgramError, match="emits two tuples or more on every path"):
        analyse(node(Process(doubles)))


def test_a_declared_key_must_exist_and_fit_the_code():
    class Counting:
        def __init__(self):
            self.counts = {}

        def __call__(self, t):
            self.counts[t.k] = 1
            yield t

    with pytest.raises(ProgramError, match="'nope', which its input does not have; columns: k, l, v"):
        analyse(node(Process(model(state="partitioned", key="nope")(Counting()))))
    with pytest.raises(ProgramError, match="declared to be partitioned by l, but it indexes its state with k"):
        analyse(node(Process(model(state="partitioned", key="l")(Counting()))))


def test_declared_partitioned_but_writes_what_all_keys_share_is_refused():
    class Total:
        total = 0

        def __call__(self, t):
            self.total += 1
            yield t

    with pytest.raises(ProgramError, match=r"writes self.total at .*, which all keys share"):
        analyse(node(Process(model(state="partitioned", key="k")(Total()))))


def test_a_declaration_that_does_not_exist_is_refused():
    with pytest.raises(ProgramError, match="model\\(state='pure'\\): no such state; valid: 'stateless'"):
        model(state="pure")


# -- sharing ----------------------------------------------------------------------------------------------


def test_two_operators_that_share_a_dict_are_sequential():
    counts = {}

    def count(t):
        counts[t.k] = counts.get(t.k, 0) + 1
        return t

    def look(t):
        return t.but(v=float(counts.get(t.k, 0)))

    b = Builder()
    first = b.node("count", Process(count), b.source())
    plan = compile_program([b.node("look", Map(look), first)])
    assert plan.chains == ()
    assert "shares counts with count" in plan.operator("look").blocked
    alone = Builder()
    assert compile_program([alone.node("count", Process(count), alone.source())]).chains


def test_one_object_used_twice_is_one_state():
    class Counting:
        def __init__(self):
            self.counts = collections.Counter()

        def __call__(self, t):
            self.counts[t.k] += 1
            yield t.but(l=self.counts[t.k])

    same = Counting()
    b = Builder()
    plan = compile_program([b.node("second", Process(same), b.node("first", Process(same), b.source()))])
    assert plan.chains == ()
    c = Builder()
    apart = compile_program([c.node("second", Process(Counting()), c.node("first", Process(Counting()), c.source()))])
    assert [chain.operators for chain in apart.chains] == [("first", "second")]


LIMIT = 3


def test_a_global_that_another_operator_assigns_is_not_read_in_parallel():
    def assign(t):
        global LIMIT
        LIMIT = t.k
        return t

    b = Builder()
    first = b.node("assign", Process(assign), b.source())
    plan = compile_program([b.node("read", Filter(lambda t: t.k > LIMIT), first)])
    assert "shares LIMIT with assign" in plan.operator("read").blocked


# -- what is emitted --------------------------------------------------------------------------------------

WIDE = Schema.of("id long, name string, value double")


@pytest.mark.parametrize(
    ("function", "mode", "same"),
    [
        (lambda t: t, "map", True),
        (lambda t: t.but(value=t.value * 2), "map", True),
        (lambda t: t.but(value=1), "map", True),
        (lambda t: t.but(name=t.name.upper()), "map", True),
        (lambda t: t.but(name=t.value), "map", False),
        (lambda t: (t.id, t.name, t.value), "map", False),
        (lambda t: [t, t.but(value=0.0)], "flat_map", True),
        (lambda t: t if t.id > 1 else None, "process", True),
        (lambda t: unknown_function(t), "map", False),  # noqa: F821
    ],
)
def test_the_output_schema_is_the_inputs_where_every_tuple_is_a_changed_copy(function, mode, same):
    assert infer_output_schema(function, WIDE, mode=mode) == (WIDE if same else None)


def test_a_dict_that_is_changed_after_it_was_emitted_is_not_mistaken():
    def late(t):
        d = {"k": 0, "l": t.l, "v": t.v}
        yield d
        d["k"] = t.k
        yield d

    assert analyse(node(FlatMap(late))).forwards("k") is None

    def early(t):
        d = {"k": 0, "l": t.l, "v": t.v}
        d["k"] = t.k
        yield d

    assert analyse(node(FlatMap(early))).forwards("k") == "k"

    def maybe(t):
        d = {"k": 0, "l": t.l, "v": t.v}
        if t.v > 0:
            d["k"] = t.k
        yield d

    assert analyse(node(FlatMap(maybe))).forwards("k") is None
    assert analyse(node(FlatMap(maybe))).forwards("l") == "l"


def test_positions_and_names_are_both_followed():
    by_place = analyse(node(Map(lambda t: (t.l, t.k, t.v))))
    assert by_place.forwarding.value == {"k": "l", "l": "k", "v": "v"}
    record = collections.namedtuple("record", "v k l")
    by_name = analyse(node(Map(lambda t: record(t.v, t.k, 1))))
    assert by_name.forwarding.value == {"v": "v", "k": "k"}


# -- rewriting --------------------------------------------------------------------------------------------


class Last:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        before = self.last.get(t.k)
        self.last[t.k] = t.v
        yield (t.k, before)


def run(logic, rows, key=lambda t: t.k):
    kept = {}
    out = []
    for t in rows:
        import copy

        instance = copy.copy(logic.prototype)
        for field in logic.fields:
            setattr(instance, field.name, kept.get(key(t), {}).get(field.name, field.initial()))
        found = getattr(instance, logic.method)(t)
        out.extend(found if found is not None else [])
        kept[key(t)] = {field.name: getattr(instance, field.name) for field in logic.fields}
    return out, kept


def test_a_rewritten_operator_keeps_plain_fields_and_never_touches_the_original():
    operator = Last()
    found = analyse(node(Process(operator)))
    assert isinstance(found.logic, Keyed) and found.case == 2
    assert [field.name for field in found.logic.fields] == ["last_present", "last_value"]
    rows = [SCHEMA.row_class(each) for each in ((1, 0, 1.0), (2, 0, 2.0), (1, 0, 3.0))]
    out, kept = run(cloudpickle.loads(cloudpickle.dumps(found.logic)), rows)
    assert out == [(1, None), (2, None), (1, 1.0)]
    assert kept == {
        1: {"last_present": True, "last_value": 3.0},
        2: {"last_present": True, "last_value": 2.0},
    }
    run(found.logic, rows)
    assert operator.last == {}


def test_a_rewritten_operator_raises_what_the_original_raises_and_keeps_what_it_wrote():
    class Fails:
        def __init__(self):
            self.last = {}

        def __call__(self, t):
            self.last[t.k] = t.v
            if t.v > 1:
                raise ValueError("too much")
            return t

    logic = analyse(node(Process(Fails()))).logic
    instance = logic.prototype
    with pytest.raises(ValueError, match="too much"):
        instance.process(SCHEMA.row_class((1, 0, 2.0)))
    assert (instance.last_present, instance.last_value) == (True, 2.0)


def test_a_key_expression_becomes_a_function():
    counts = collections.Counter()

    def count(t):
        counts[t.k // 10, t.l] += 1
        return t.but(v=float(counts[t.k // 10, t.l]))

    found = analyse(node(Process(count)))
    assert found.key.expression == "((t.k // 10), t.l)"
    assert found.key.columns == ("k", "l")
    key = cloudpickle.loads(cloudpickle.dumps(found.key.function))
    assert key(SCHEMA.row_class((25, 7, 0.0))) == (2, 7)


def test_a_partial_of_a_method_is_followed():
    class Scale:
        def apply(self, t, factor):
            return t.but(v=t.v * factor)

    found = analyse(node(Map(functools.partial(Scale().apply, factor=2.0))))
    assert found.state.value is State.STATELESS and found.forwards("k") == "k"


# -- declarations and methods that are seen to be something else ---------------------------------------------


def _constant(t):
    return t.but(k="z")


def _computed(t):
    return t.but(k=t.k + t.k)


def _named_like_a_choice(t):
    return t.but(k=t.k + " if or and ")


def _chosen_from_others(t):
    return t.but(k="a" if t.k == "z" else "b")


@pytest.mark.parametrize("replaces", [_constant, _computed, _named_like_a_choice, _chosen_from_others])
def test_a_declared_forwarding_that_the_code_replaces_is_refused(replaces):
    import anabranch as ab

    stream = ab.from_rows([("a", 1)], "k string, x long").map(ab.model(forwards=("k",))(replaces))
    with pytest.raises(ProgramError, match="declared to forward 'k', but it emits"):
        analyse(stream._node)


def _chosen(t):
    return t.but(k=t.k if t.x > 0 else "z")


def _nested(t):
    return t.but(k=("z" if t.x < 0 else t.k) or "y")


@pytest.mark.parametrize("may_copy", [_chosen, _nested])
def test_a_declared_forwarding_that_the_code_may_keep_is_believed(may_copy):
    import anabranch as ab

    stream = ab.from_rows([("a", 1)], "k string, x long").map(ab.model(forwards=("k",))(may_copy))
    assert analyse(stream._node).forwards("k") == "k"


def test_a_method_replaced_on_the_object_is_refused():
    class Passes:
        def __call__(self, t):
            yield t

    replaced = Passes()
    replaced.__call__ = lambda t: [t, t]
    with pytest.raises(ProgramError, match=r"__call__\(\) was replaced on the object itself"):
        analyse(node(Process(replaced)))


def test_what_makes_an_accumulator_is_read():
    import anabranch as ab

    made = []

    def create():
        made.append(1)
        return len(made)

    counted = ab.agg.custom(create, lambda a, x: a + x, lambda a: a, "long", "x")
    stream = ab.from_rows([("a", 1)], "k string, x long").aggregate(by="k", window=ab.tumbling(2), n=counted)
    assert any("outlives the call" in block.reason for block in analyse(stream._node).blocks)
