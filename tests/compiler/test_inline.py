"""Methods rewritten over columns do what the methods do, and those that might not are left alone."""

import inspect

import pytest

import anabranch as ab
from anabranch.compiler.rewriting.inline import inlined
from anabranch.errors import OperatorError
from anabranch.testing import run_parallel

COLUMNS = "k long, x double"
ROWS = [(n % 3, n / 4) for n in range(40)]
LIMIT = 5.0


class Running(ab.Operator):
    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield t.k, self.total


class PassesOn(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if self.seen % 2:
            return
        yield t


class Branches(ab.Operator):
    """Locals that live for one tuple, loops, try, comprehensions, globals, several yields."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if t.x > LIMIT:
            extra = t.x
        for n in range(self.seen % 3):
            if n == 1:
                yield (t.k, sum([t.x * m for m in range(n + 1)]))
                continue
            yield {"k": t.k, "x": float(n)}
        try:
            yield (t.k, extra)
        except UnboundLocalError:
            yield (-1, 0.0)
        match t.k:
            case 2:
                return
        yield t.but(x=-1.0) if False else (t.k, 9.0)


class KeepsWholeTuple(ab.Operator):
    last = ab.state(default=None)

    def process(self, t):
        self.last = tuple(t)
        yield t


class Delegates(ab.Operator):
    def process(self, t):
        yield from [(t.k, t.x)] * 2


class Shadows(ab.Operator):
    def process(self, t):
        yield t.k, sum(t for t in [1.0, 2.0])


def closure_operator():
    offset = 3.0

    class Closure(ab.Operator):
        def process(self, t):
            yield t.k, t.x + offset

    return Closure()


def inlines(operator: ab.Operator) -> bool:
    return inlined(type(operator).process, ("k", "x"), ("k", "x")) is not None


@pytest.mark.parametrize("operator", [Running(), PassesOn()])
def test_plain_methods_are_rewritten(operator):
    assert inlines(operator)


@pytest.mark.parametrize("operator", [KeepsWholeTuple(), Delegates(), Shadows(), closure_operator(), Branches()])
def test_methods_that_use_the_tuple_as_a_whole_or_have_a_closure_are_left_alone(operator):
    assert not inlines(operator)


@pytest.mark.parametrize(
    "operator", [Running(), PassesOn(), Branches(), KeepsWholeTuple(), Delegates(), Shadows(), closure_operator()]
)
def test_the_output_is_that_of_the_method(operator):
    stream = ab.from_rows(ROWS, COLUMNS, rows_per_epoch=15).process(operator, by="k", schema=COLUMNS)
    assert run_parallel(stream, channels=2) == stream.run_sequential()


class StaleLocal(ab.Operator):
    def process(self, t):
        if t.x > LIMIT:
            found = t.x
        try:
            yield t.k, found
        except UnboundLocalError:
            yield t.k, -1.0


def test_locals_do_not_live_on_to_the_next_tuple():
    assert inlines(StaleLocal())
    stream = ab.from_rows(ROWS[::-1], COLUMNS).process(StaleLocal(), by="k", schema=COLUMNS)
    assert run_parallel(stream) == stream.run_sequential()


class Fails(ab.Operator):
    def process(self, t):
        yield t.k, 1 / (t.x - 2.0)


class ReturnsText(ab.Operator):
    def process(self, t):
        yield t.k, "text" if t.x == 2.0 else t.x


def test_an_error_in_a_rewritten_method_names_the_line_and_the_tuple():
    assert inlines(Fails())
    stream = ab.from_rows(ROWS, COLUMNS).process(Fails(), by="k", schema=COLUMNS)
    line = inspect.getsourcelines(Fails.process)[1] + 1
    with pytest.raises(
        OperatorError, match=rf"test_inline.py:{line} in process.*ZeroDivisionError|ZeroDivisionError"
    ) as e:
        run_parallel(stream)
    assert f"test_inline.py:{line} in process" in str(e.value) and "(k=2, x=2.0)" in str(e.value)


def test_a_wrong_type_from_a_rewritten_method_names_the_tuple():
    assert inlines(ReturnsText())
    stream = ab.from_rows(ROWS, COLUMNS).process(ReturnsText(), by="k", schema=COLUMNS)
    with pytest.raises(OperatorError, match=r"column 'x' is double; found 'text'") as error:
        run_parallel(stream)
    assert "(k=2, x=2.0)" in str(error.value)


class OfChangedSource(ab.Operator):
    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield t.k, self.total


def test_source_that_changed_since_it_was_imported_is_not_used(monkeypatch):
    lines, first = inspect.getsourcelines(OfChangedSource.process)
    changed = [line.replace("+=", "-=") for line in lines]
    monkeypatch.setattr(inspect, "getsourcelines", lambda _: (changed, first))
    assert not inlines(OfChangedSource())


class RewrittenOnce(ab.Operator):
    def process(self, t):
        yield t.k, t.x + LIMIT


def test_a_method_is_read_once_and_runs_with_the_globals_of_its_function(monkeypatch):
    function = RewrittenOnce.process
    assert inlined(function, ["k", "x"], ["k", "x"]) is not None
    monkeypatch.setattr(inspect, "getsourcelines", lambda _: pytest.fail("read again"))
    elsewhere = type(function)(function.__code__, {"LIMIT": 100.0}, "process")
    for each, limit in ((function, LIMIT), (elsewhere, 100.0)):
        columns, positions = ([], []), []
        rewritten = inlined(each, ["k", "x"], ["k", "x"])
        assert rewritten is not None
        rewritten.make(*(column.append for column in columns), positions.append, None)(7, None, 1, 2.0)
        assert (columns, positions) == (([1], [2.0 + limit]), [7])


def test_equal_code_of_two_files_keeps_the_name_of_its_own(tmp_path):
    makers = []
    for name in ("one.py", "other.py"):
        path = tmp_path / name
        path.write_text("def process(self, t):\n    yield t.k, t.x\n")
        names: dict = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        makers.append((str(path), inlined(names["process"], ["k", "x"], ["k", "x"])))
    assert [maker.make.__code__.co_filename for _, maker in makers] == [path for path, _ in makers]
