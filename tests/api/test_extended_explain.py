"""explain(extended=True): the code that tasks run, and which columns they read and send."""

import datetime
import json

import pytest

import anabranch as ab
from anabranch import agg
from anabranch.api.explaining import explained
from anabranch.compiler.rewriting.inline import inlined
from anabranch.engine.worker.clock_columns import ClockColumns
from anabranch.engine.worker.explained_code import explained_code
from anabranch.engine.worker.join_columns import JoinColumns
from anabranch.engine.worker.running_columns import RunningStep
from anabranch.engine.worker.session_columns import SessionColumns
from anabranch.engine.worker.top_columns import TopStep
from anabranch.engine.worker.window_columns import WindowColumns
from anabranch.errors import ProgramError
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, Running

EVENTS = "kind int, bid struct<auction: long, price: long, url: string>, note string"


def text_of(stream, **options):
    return explained(stream.plan(), extended=True, **options)


def test_the_code_of_maps_filters_and_keyed_operators_is_shown():
    stream = ab.from_rows([], EVENTS, name="events").filter(lambda t: t.kind == 2, name="bids")
    stream = stream.map(lambda t: (t.bid["auction"], t.bid["price"] * 2), schema="a long, p long", name="doubled")
    stream = stream.process(Sum(), by="a", schema="a long, s long", name="sums")
    text = text_of(stream)
    assert (
        "bids  a condition of whole columns: kind; where it fails for a tuple: over columns; called once a tuple with"
        in text
    )
    assert "return c0 * 2" in text and "passed on as columns: a is bid.auction" in text
    assert "read of its rows: kind, bid.auction, bid.price" in text
    assert "left out, because nobody reads it: bid.url, note" in text
    assert "s0[slot] += c1" in text and "lists of its state by slot (s0 s" in text, "the generated loop"
    without = text_of(stream, columns={"methods"})
    assert "self.s += c1" in without and "o0(v0)" in without, "the same with instances"


class Sum(ab.Operator):
    s = ab.state(0)

    def process(self, t):
        self.s += t.p
        yield t.a, self.s


def test_what_is_shown_is_what_is_compiled():
    """The source, compiled again, does what the rewritten method does."""
    found = inlined(Sum.process, ("a", "p"), ("a", "s"))
    names = ["o0", "o1", "place", "unpack", "StopIteration", "RuntimeError"]
    space = dict.fromkeys(names[:4])
    outputs = [[], []]
    space.update(o0=outputs[0].append, o1=outputs[1].append, place=[].append)
    exec(found.source, space)
    operator = Sum()
    operator.s = 40
    space["process"](0, operator, 7, 2)
    assert outputs == [[7], [42]]


def test_columns_that_are_not_sent_and_what_is_called_as_it_is():
    source = ab.from_rows([], COLUMNS, name="in")
    counted = source.aggregate(by="k", window=ab.running(), n=ab.agg.count(), name="counted")
    text = text_of(counted)
    assert "sent by in: k; left out, because nobody reads it: s, x" in text
    whole = source.map(lambda t: tuple(t), schema=COLUMNS, name="whole")
    assert "whole  called as it is, tuple by tuple" in text_of(whole)
    assert "sent by in: k, s, x" in text_of(counted, columns=())


def test_json_has_it_too_and_drawings_do_not():
    stream = ab.from_rows([], COLUMNS).process(Running(), by="k", schema=COLUMNS, name="running")
    data = json.loads(explained(stream.plan(), "json", extended=True))
    assert {each["operator"] for each in data["code"]} >= {"running"} and data["columns"]
    assert "code" not in json.loads(explained(stream.plan(), "json"))
    with pytest.raises(ProgramError, match="'text' and 'json' only"):
        explained(stream.plan(), "svg", extended=True)


def test_explain_prints_it(capsys):
    ab.from_rows([], COLUMNS).filter(lambda t: t.x > 1, name="large").explain(extended=True)
    assert "code of stage 0" in capsys.readouterr().out


EVENT = "k long, x long, at timestamp"
TIMED = [(n % 3, n, datetime.datetime(2024, 1, 1, 0, 0, n, tzinfo=datetime.UTC)) for n in range(40)]


def everything_over_columns():
    """Operators of every kind that the tasks can compute for a batch at once, and one of each that they cannot."""
    source = ab.from_rows(TIMED, EVENT, name="in")
    timed = source.event_time("at", lateness=1)
    return [
        source.aggregate(by="k", window=ab.running(), x=agg.sum("x"), name="running"),
        source.aggregate(by="k", window=ab.running(), x=agg.first("x"), name="first"),
        source.aggregate(by="k", window=ab.tumbling(3), x=agg.sum("x"), name="counted"),
        source.top(2, "x", by="k", name="top"),
        source.aggregate(by="k", window=ab.tumbling(ab.time(5)), x=agg.sum("x"), name="clock"),
        timed.aggregate(by="k", window=ab.tumbling(ab.event_time("at", 5)), x=agg.sum("x"), name="windows"),
        timed.aggregate(by="k", window=ab.sessions("at", 2), x=agg.sum("x"), name="sessions"),
        timed.join(timed.select("k", y="x", then="at"), by="k", name="joined"),
    ]


TAKEN = {
    (RunningStep, "_taken"): "running",
    (TopStep, "_taken"): "top",
    (ClockColumns, "prepare"): "windows",
    (WindowColumns, "taken"): "windows",
    (SessionColumns, "taken"): "sessions",
    (JoinColumns, "taken"): "joins",
}


@pytest.mark.parametrize("columns", [OVER_COLUMNS, ("running", "windows"), ("top", "sessions", "joins"), ()])
def test_what_is_said_of_the_library_is_what_its_tasks_do(columns, tmp_path, monkeypatch):
    ran = []
    for (kind, method), name in TAKEN.items():
        original = getattr(kind, method)

        def noting(*arguments, original=original, name=name):
            found = original(*arguments)
            if found is not None and found is not False:
                ran.append(name)
            return found

        monkeypatch.setattr(kind, method, noting)
    for number, stream in enumerate(everything_over_columns()):
        code = explained_code(stream.plan().layout, columns).operators
        said = [name for each in code for name in set(TAKEN.values()) if each.how.endswith(f"({name})")]
        ran.clear()
        run = ParallelRun(stream, str(tmp_path / str(number)), channels=2, columns=columns)
        run.run_epochs()
        assert set(ran) == set(said), code
