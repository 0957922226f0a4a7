"""What was proven or declared is watched where it runs: what does otherwise is refused, with the tuple and the line."""

import pytest

import anabranch as ab
from anabranch.compiler.rewriting.watched_dicts import KEPT, Strayed, Watch, empty_like, unwatch, watch
from anabranch.errors import OperatorError, ProgramError
from anabranch.testing import ParallelRun
from tests.engine.planted_verdicts import BY_KEY, COUNTED, PLANTED, ROWS, source, switch_proof_off

# What the dicts themselves cannot see: attributes beside them, and one object as the value of several keys.
BESIDE = {"an attribute beside the dict", "one list for all keys"}


@pytest.mark.parametrize("name", [name for name, (verdict, *_) in PLANTED.items() if verdict == BY_KEY])
def test_another_key_or_a_walk_over_all_is_refused(name, monkeypatch, tmp_path):
    _, make, _ = PLANTED[name]
    switch_proof_off(monkeypatch, BY_KEY)
    run = ParallelRun(make(), str(tmp_path), channels=2)
    if name in BESIDE:
        run.run_epochs()
        return
    with pytest.raises(OperatorError, match=r"raised Strayed: used .*\n.*planted_verdicts.py:(.|\n)*for the tuple"):
        run.run_epochs()
    assert not run.output


def test_code_that_catches_everything_is_refused_all_the_same(monkeypatch, tmp_path):
    class Catching:
        def __init__(self):
            self.d = {}

        def __call__(self, t):
            self.d[t.k] = t.x
            try:
                size = len(self.d)
            except Exception:
                size = 0
            yield t.k, size

    switch_proof_off(monkeypatch, BY_KEY)
    with pytest.raises(OperatorError, match="as a whole"):
        ParallelRun(source().process(Catching(), schema=COUNTED), str(tmp_path)).run_epochs()


@pytest.mark.parametrize("kind", KEPT)
def test_dicts_that_are_watched_do_what_is_allowed(kind):
    held = empty_like(kind(int) if "default" in kind.__name__ else kind())
    watch(held, Watch("d", "a", "t.k"))
    if isinstance(held, set):
        held.add("a")
        held.update(["a"])
        assert "a" in held
        held.discard("a")
        assert "a" not in held
    else:
        held["a"] = 1
        held.update({"a": 2})
        held["a"] = 2
        assert held["a"] == held.get("a") == held.setdefault("a", 5) == 2 and "a" in held
        assert held.pop("a") == 2 and held.get("a", 7) == 7
    for refused in (lambda: len(held), lambda: list(held), lambda: "b" in held, lambda: held.update(["bc"])):
        with pytest.raises(Strayed):
            refused()
    unwatch(held)
    assert len(held) == 0 and type(held) is KEPT[kind]


def test_watching_all_tuples_finds_what_comes_late(monkeypatch, tmp_path):
    class Late:
        def __init__(self):
            self.d = {}

        def __call__(self, t):
            self.d[t.k] = self.d.get(t.k, 0) + 1
            yield t.k, (sum(self.d.values()) if t.x > 490 else 0)

    switch_proof_off(monkeypatch, BY_KEY)
    rows = [("ab"[n % 2], n) for n in range(500)]
    stream = ab.from_rows(rows, "k string, x long").process(Late(), schema=COUNTED)
    ParallelRun(stream, str(tmp_path / "sample"), channels=1).run_epochs()
    with pytest.raises(OperatorError, match=r"x=49\d"):
        ParallelRun(stream, str(tmp_path / "all"), channels=1, watch="all").run_epochs()
    ParallelRun(stream, str(tmp_path / "off"), channels=1, watch="off").run_epochs()


class Count(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1
        yield t


def hidden(function):
    """Something that the compiler cannot follow."""
    return eval("lambda t: function(t)", {"function": function})


def declared(function, **said):
    return ab.model(state="stateless", **said)(hidden(function))


FALSE = {
    "forwards a column it changes": lambda s: s.map(
        declared(lambda t: t.but(k=t.k + "!"), forwards="k", selectivity="1:1"), schema="k string, x long"
    ),
    "one for each, and none": lambda s: s.flat_map(
        declared(lambda t: [t] if t.x else [], selectivity="1:1"), schema="k string, x long"
    ),
    "at most one, and two": lambda s: s.flat_map(
        declared(lambda t: [t, t], selectivity="1:[0,1]"), schema="k string, x long"
    ),
}


@pytest.mark.parametrize("name", FALSE)
@pytest.mark.parametrize("inside", [False, True], ids=["where the source is read", "in a channel"])
def test_a_false_declaration_is_an_error_that_names_tuple_and_line(name, inside, tmp_path):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=30)
    stream = stream.process(Count(), by="k") if inside else stream
    stream = FALSE[name](stream).process(Count(), by="k")
    with pytest.raises(
        ProgramError, match=r"test_watch.py:\d+\), epoch \d+: declared to .*for the tuple \(k='.', x=\d"
    ):
        ParallelRun(stream, str(tmp_path)).run_epochs()


def test_a_key_that_was_not_forwarded_is_an_error(tmp_path, monkeypatch):
    """Also where the operator that changes it is not looked at itself."""
    from anabranch.engine.worker import watching

    monkeypatch.setattr(watching, "_declaration", lambda node: None)
    stream = ab.from_rows(ROWS, "k string, x long").process(Count(), by="k")
    stream = FALSE["forwards a column it changes"](stream).process(Count(), by="k")
    with pytest.raises(ProgramError, match="belongs to another channel"):
        ParallelRun(stream, str(tmp_path)).run_epochs()
