"""A program on its way to the workers: the text of its code goes along."""

import linecache
import pickle
import subprocess
import sys
import textwrap
import types
from typing import NamedTuple

import anabranch as ab
from anabranch.engine.thread_settings import ThreadSettings
from anabranch.program.source_code import NoSource, tree_of
from anabranch.program.travelling import give_sources, packed, sources_of
from anabranch.program.whole_copies import loaded, pickled_whole

CELL = "def double(t):\n    return t.a * 2, t.b\n"


class Pair(NamedTuple):
    a: int
    b: int


def from_a_cell(text: str, name: str = "<a cell 1>"):
    """A function as a notebook makes it: its text is in `linecache` only, and its module is `__main__`."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    made = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), made)
    return made["double"]


def test_a_notebook_s_function_has_its_source_in_another_process(tmp_path):
    stream = ab.from_rows([], "a long, b long").map(from_a_cell(CELL), schema="a long, b long")
    node = stream._node
    (tmp_path / "program").write_bytes(packed(node, [node], ThreadSettings.here()))
    child = """
        import sys
        from anabranch.engine.worker.column_steps import column_plan
        from anabranch.program.travelling import unpacked

        node, _ = unpacked(open(sys.argv[1], "rb").read())
        plan = column_plan(node)
        assert plan is not None and plan.copied and plan.parts[0].function(21) == 42
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(child), str(tmp_path / "program")], check=True)


def test_the_text_that_is_given_is_that_of_the_driver():
    name = "<a cell 2>"
    function = from_a_cell(CELL, name)
    sources = sources_of([function])
    assert sources == {name: CELL}
    linecache.cache[name] = (1, None, ["something else\n"], name)
    assert isinstance(tree_of(function), NoSource)
    give_sources(sources)
    assert not isinstance(tree_of(function), NoSource)
    linecache.checkcache(name)  # as a traceback does
    assert not isinstance(tree_of(function), NoSource)


def test_neither_code_of_libraries_nor_endless_files_are_sent():
    long = from_a_cell(CELL + "# " + "x" * 1_000_000, "<a cell 3>")
    assert sources_of([long, textwrap.dedent, pickle.dumps]) == {}


def test_code_of_no_module_is_looked_for_in_none(monkeypatch):
    """As that of aggregates is: a search for each of their methods takes as long as a program has modules."""
    asked = []

    class Nosy(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "nosy", Nosy("nosy"))
    made = {}
    exec(CELL, made)
    assert made["double"].__module__ is None
    found, _ = pickled_whole(made["double"], made["double"])
    assert loaded(found)(Pair(2, 3)) == (4, 3)
    stream = ab.from_rows([], "a long, b long").aggregate(by="a", window=ab.tumbling(2), n=ab.agg.count())
    packed(stream._node, [stream._node], ThreadSettings.here())
    assert "double" not in asked and "process" not in asked
