"""isolate and colocate: where operators run is as asked, what they give is as without; what cannot be is refused."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, punctuation, tumbling
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout import laying_out
from anabranch.compiler.layout.hot_key_split import has_parts
from anabranch.compiler.layout.source_spread import spread_names
from anabranch.engine.driver.switching import Form
from anabranch.errors import ProgramError
from anabranch.program.graph import named
from anabranch.testing import ParallelRun, run_parallel, run_sequential
from tests.graphs import build, cases, clocks
from tests.programs import exact

COLUMNS = "k long, l long, x long"
ROWS = [(n % 5, n % 3, n) for n in range(60)]


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield t.but(x=self.seen)


class Total:
    def __init__(self):
        self.total = 0

    def __call__(self, t):
        self.total += t.x
        yield t.but(x=self.total)


def twice(t):
    yield t
    yield t.but(x=-t.x)


def source():
    return ab.from_rows(ROWS, COLUMNS, rows_per_epoch=25)


def count(stream, key="k", name="count"):
    return stream.process(Count(), by=key, schema=COLUMNS, name=name)


def total(stream):
    return stream.process(Total(), schema=COLUMNS, name="total")


def timed(stream):
    return stream.aggregate(by="k", window=tumbling(ab.time(1)), total=agg.sum("x"), name="sums")


def stages(stream):
    layout = stream.plan().layout
    return [[node.name for node in layout.nodes(stage)] for stage in layout.stages]


def assert_same(stream):
    for channels in (1, 3):
        assert exact(run_parallel(stream, channels=channels, seed=channels)) == exact(stream.run_sequential())


# -- isolate -------------------------------------------------------------------------------------------------------


def test_an_operator_without_state_gets_a_stage_of_its_own_and_what_follows_another():
    heavy = source().filter(lambda t: t.x != 3).map(lambda t: t.but(x=t.x + 1), name="heavy").isolate()
    stream = heavy.filter(lambda t: t.x % 7 != 0, name="rest")
    assert stages(stream) == [["source", "filter"], ["heavy"], ["rest"]]
    kinds = [stage.kind for stage in stream.plan().layout.stages]
    assert kinds == ["source", "spread", "spread"]
    assert_same(stream)


def test_operators_that_would_share_a_stage_do_not():
    first, second = count(source(), name="first"), count(count(source(), name="first"), name="second")
    assert stages(second) == [["source"], ["first", "second"]]
    stream = count(first.isolate(), name="second").filter(lambda t: t.x > 2)
    assert stages(stream) == [["source"], ["first"], ["second", "filter"]]
    assert_same(stream)


def test_a_source_and_what_runs_on_one_channel_can_be_isolated():
    stream = total(source().isolate().filter(lambda t: t.x != 4)).isolate().filter(lambda t: t.x % 2 == 0, name="even")
    assert stages(stream) == [["source"], ["filter"], ["total"], ["even"]]
    assert_same(stream)


def test_the_ways_of_a_split_are_one_operator_with_it():
    small, rest = source().split(lambda t: t.x < 30, name="ways")
    stream = small.isolate().map(lambda t: t.but(x=0), name="zero").union(rest)
    assert stages(stream) == [["source"], ["ways", "ways_0", "ways_1"], ["zero"]]
    assert_same(stream)


def test_what_is_said_of_one_stream_holds_for_its_operator():
    plain = source().map(lambda t: t.but(x=-t.x), name="minus")
    stream = plain.union(plain.isolate())
    assert stages(stream) == [["source"], ["minus"]]
    assert_same(stream)


def test_a_union_cannot_be_isolated():
    both = source().union(source()).isolate()
    assert "isolate: union" in both.plan().refused
    with pytest.raises(ProgramError, match="runs in no stage"):
        run_parallel(both)


# -- colocate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [True, False])
def test_what_stands_before_a_key_can_run_behind_the_shuffle(by_name):
    made = source().filter(lambda t: t.x != 3).flat_map(twice, name="twice")
    if by_name:
        stream = count(made.colocate("count"))
    else:
        stream = count(made).colocate(made)
    layout = stream.plan().layout
    assert stages(stream) == [["source", "filter"], ["twice", "count"]]
    assert [edge.key for edge in layout.inputs_of(layout.stages[1])] == [("k",)]
    assert_same(stream)


def test_a_key_is_followed_through_new_names_on_the_way():
    renamed = source().map(lambda t: (t.k, t.x), schema="key long, x long", name="renamed").colocate("sums")
    stream = renamed.aggregate(by="key", window=tumbling(3), total=agg.sum("x"), name="sums")
    layout = stream.plan().layout
    assert [edge.key for edge in layout.inputs_of(layout.stages[1])] == [("k",)]
    assert_same(stream)


def test_what_stands_before_one_channel_can_run_in_it():
    stream = total(source().map(lambda t: t.but(x=t.x + 1), name="before").colocate("total"))
    assert stages(stream) == [["source"], ["before", "total"]]
    assert_same(stream)


def test_behind_a_union_too():
    both = source().union(source().filter(lambda t: t.x > 9)).map(lambda t: t.but(x=t.x + 1), name="both")
    stream = count(both.colocate("count"))
    assert stages(stream)[-1] == ["both", "count"]
    assert_same(stream)


def test_what_is_together_anyway_stays_as_it_is():
    stream = count(source()).filter(lambda t: t.x > 1, name="after").colocate("count")
    assert stages(stream) == [["source"], ["count", "after"]]


REFUSED = {
    "other keys": (lambda: count(count(source()), "l", "other").colocate("count"), "key would be empty"),
    "a key that is lost": (
        lambda: count(source().map(lambda t: t.but(k=t.k + 1), name="lost").colocate("count")),
        "not forwarded by lost",
    ),
    "one channel": (lambda: total(count(source())).colocate("count"), "it runs on one channel"),
    "isolated": (lambda: count(source()).filter(bool).isolate().colocate("count"), "isolate"),
    "waits": (
        lambda: (
            source()
            .punctuate(lambda t: t.x % 9 == 0, name="marks")
            .aggregate(by="k", window=tumbling(punctuation()), n=agg.count(), name="windows")
            .colocate("marks")
        ),
        "waits for punctuations",
    ),
    "a union": (lambda: source().union(source(), name="both").colocate("source"), "runs in no stage"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(name):
    make, reason = REFUSED[name]
    with pytest.raises(ProgramError, match=f"colocate: .*{reason}"):
        run_parallel(make())


def test_names_that_nobody_has_are_refused():
    with pytest.raises(ProgramError, match=r"colocate\(nobody\): the program has no such operator; operators: source"):
        count(source()).colocate("nobody").run_sequential()
    with pytest.raises(ProgramError, match="expected names of operators, or streams"):
        source().colocate()


def test_an_aggregation_that_must_stay_with_others_is_not_two_steps(tmp_path):
    assert has_parts([timed(source()).filter(lambda t: t.total != 3)._node])
    stream = timed(source()).filter(lambda t: t.total != 3).colocate("sums")
    assert not has_parts([stream._node])
    run = ParallelRun(stream, str(tmp_path), channels=3, split_hot_keys=True)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())


def test_explain_shows_what_was_asked():
    text = count(source().map(lambda t: t, name="same").colocate("count")).isolate().plan().explain()
    assert "cannot run" in text, "both cannot be"
    text = count(source().map(lambda t: t, name="same").colocate("count")).plan().explain()
    assert "placed       in the stage of count: colocate()" in text
    assert "starts here: colocate() puts it into the stage of count" in text
    assert "placed       in a stage of its own: isolate()" in count(source()).isolate().plan().explain()


# -- in every form of a program ------------------------------------------------------------------------------------


def forms_of(nodes):
    """The forms that a query may go over to while it runs."""
    names = spread_names(named(nodes))
    subsets = [frozenset(), frozenset(names), *(frozenset({name}) for name in names)]
    return [Form(split, spread) for split in (False, True) for spread in dict.fromkeys(subsets)]


def same(stream, name="same"):
    return stream.map(lambda t: t.but(x=t.x), name=name)


MARKED = {
    "with its source": lambda: count(same(source()).colocate("source")),
    "with its source, by way of another": lambda: count(same(same(source()), "b").colocate("same").colocate("source")),
    "a source alone": lambda: count(same(source().isolate())),
    "alone": lambda: count(same(source()).isolate()),
    "with a key": lambda: count(same(source()).colocate("count")),
    "a window alone": lambda: timed(source()).isolate(),
    "behind a window": lambda: timed(source()).map(lambda t: (t.total,), schema="n long", name="n").colocate("sums"),
    "before a window": lambda: timed(same(count(source())).colocate("count")),
    "one of two sources": lambda: count(same(source()).colocate("source").union(same(source(), "b"))),
}


@pytest.mark.parametrize("name", MARKED)
def test_what_may_run_as_written_may_run_in_every_form(name, tmp_path):
    stream = MARKED[name]()
    assert not compiled([stream._node]).refused
    for at, form in enumerate(forms_of([stream._node])):
        run = ParallelRun(stream, str(tmp_path / str(at)), channels=2, clocks_ms=[0, 900, 1800])
        run.run_epochs(last=0)
        run._switching._forms.spread_names = spread_names(named([stream._node]))
        run._switching._go_over(form, "wanted" if form.split_hot_keys else "", "wanted")
        assert run._switching.form == form
        run.run_epochs(first=1)
        assert exact(run.output) == exact(run_sequential([stream], clocks_ms=[0, 900, 1800])[0])


def test_a_source_that_must_run_with_others_is_not_dealt_out():
    assert spread_names(named([same(source())._node])) == {"source": "source-spread"}
    assert spread_names(named([MARKED["with its source"]()._node])) == {}
    spread = compiled([MARKED["a source alone"]()._node], spread={"source"}).layout
    assert [[node.name for node in spread.nodes(stage)] for stage in spread.stages][1] == ["source-spread", "same"]


def test_a_form_that_cannot_be_never_stops_a_query(tmp_path, caplog, monkeypatch):
    """Whatever is wrong with it: the query goes on as it is, tries it no more, and says so."""
    stream = count(same(source()))
    run = ParallelRun(stream, str(tmp_path), channels=2, split_hot_keys="auto")
    tried = []

    def refuse(form):
        tried.append(form)
        raise KeyError("nobody knows why")

    monkeypatch.setattr(run._switching._forms, "_make", refuse)
    run._switching._forms._made.clear()
    wants = property(lambda self: "a key is too hot", lambda self, value: None)
    monkeypatch.setattr(type(run.runner.adaptation.balancing), "wants_split", wants, raising=False)
    run.run_epochs()
    assert tried == [Form(split_hot_keys=True)] and run._switching.form == Form()
    assert exact(run.output) == exact(stream.run_sequential())
    assert "stays as it is, though it should change (a key is too hot)" in caplog.text
    assert "nobody knows why" in caplog.text


# -- any program ---------------------------------------------------------------------------------------------------


def marked(marks):
    def mark(number, stream, read):
        said = marks[number % len(marks)]
        if said == "isolate" and stream._node.kind != "union":
            return stream.isolate()
        return stream.colocate(read) if said == "colocate" else stream

    return mark


def compare(case, marks, channels, seed, times, directory):
    recipe, inputs = case
    streams = build(recipe, inputs, mark=marked(marks))
    try:
        run = ParallelRun(streams, str(directory), channels=channels, seed=seed, clocks_ms=times)
        expected = run_sequential(build(recipe, inputs), clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        for known in ("no source", "still fed back", "colocate: "):
            assume(known not in str(problem))
        raise
    nodes = [stream._node for stream in streams]
    for form in forms_of(nodes):
        assert not compiled(nodes, form.split_hot_keys, form.spread).refused, form
    run.run_epochs()
    for got, wanted in zip(run.outputs, expected, strict=True):
        assert exact(got) == exact(wanted)


@settings(
    max_examples=120,
    derandomize=True,
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
@given(
    case=cases(steps_max=6),
    marks=st.lists(st.sampled_from(["", "isolate", "isolate", "colocate"]), min_size=1, max_size=6),
    channels=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    times=clocks,
)
def test_any_graph_with_any_marks_gives_the_sequential_output(tmp_path_factory, case, marks, channels, seed, times):
    compare(case, marks, channels, seed, times, tmp_path_factory.mktemp("checkpoint"))


def test_a_layout_that_routes_held_operators_anyhow_is_caught(monkeypatch):
    """The comparison can fail: if what was moved behind the shuffle is routed by another column, keys miss tuples,
    or the channel that gets one which is not its own refuses it."""
    stream = count(source().flat_map(twice, name="twice").colocate("count"))
    monkeypatch.setattr(laying_out._Draft, "_edge_key", lambda self, target, place: ("l",))
    with pytest.raises((AssertionError, ProgramError)):
        assert_same(stream)
