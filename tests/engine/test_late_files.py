"""Programs over files whose columns are read late give the same as where all is read: rows, errors, counts."""

import datetime
import os
import re
from collections import Counter
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.claimed_tasks import ClaimedTasks
from anabranch.engine.thread_settings import own_context
from anabranch.engine.worker import file_pieces, splitters
from anabranch.engine.worker.exchange import table_of
from anabranch.engine.worker.file_pieces import ListedFile, cut, dealt, examined
from anabranch.errors import AnabranchError
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun
from tests.compiler.condition_rules import chance_of
from tests.engine.column_ways import EXAMPLES

COLUMNS = (
    "kind int, n long, s string, x double, at timestamp, "
    "bid struct<auction: long, price: double, who: struct<id: int>>, must long not null"
)
SCHEMA = ab.from_rows([], COLUMNS).schema
START = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)


class FilesRun(ParallelRun):
    """A run whose tasks read files: of each epoch those of a directory."""

    def __init__(self, stream, place, epochs, seed=0, **more):
        super().__init__(stream, str(place / "checkpoint"), seed=seed, **more)
        self._place = place
        self._of = epochs
        self._jobs = 0
        self._number = 0
        (place / "sent").mkdir()

    def batch(self, rows, number):
        self._number = number
        super().batch(rows, number)

    def _executed(self, rows, job):
        return own_context().run(self._executed_here, rows, job)

    def _executed_here(self, rows, job):
        read = None
        if rows is not None:
            pieces = []
            for path in self._of[self._number]:
                file = ListedFile(0, path, os.path.basename(path), 0)
                footer = examined(file, self._sources[0].schema)
                assert not isinstance(footer, str), footer
                pieces += cut(file, footer, 1 if self._seed % 2 else None)
            read = dealt(pieces, 1 + self._seed % 3)
        self._jobs += 1
        tasks = ClaimedTasks.of(str(self._place / "sent"), self._jobs, job, read)
        tasks.work_off(0, again=False)
        return table_of(tasks.results())


def rows_of(chance, count, begin):
    """Tuples of which those of a kind mostly stand together."""
    kind, rows = 0, []
    for at in range(count):
        kind = chance.randint(0, 3) if chance.random() < 0.1 else kind
        bid = {"auction": chance.randint(0, 9), "price": chance.choice([1.5, None, 3.0]), "who": {"id": at}}
        bid["who"] = None if chance.random() < 0.2 else bid["who"]
        rows.append(
            {
                "kind": kind,
                "n": None if chance.random() < 0.1 else chance.randint(-3, 9),
                "s": chance.choice(["a", "b", None, "é"]),
                "x": chance.choice([0.5, float("nan"), 2.0]),
                "at": START + datetime.timedelta(seconds=begin + at + chance.randint(-4, 4)),
                "bid": bid if kind == 1 else None,
                "must": at,
            }
        )
    return rows


LIMIT = 2
BEFORE = START + datetime.timedelta(seconds=40)
FILTERS = [
    lambda t: t.kind == 1,
    lambda t: t.kind == 7,
    lambda t: t.bid is not None,
    lambda t: t.bid is not None and t.bid["auction"] % 3 == 0,
    lambda t: t.n is not None and t.n > LIMIT,
    lambda t: t.n > LIMIT,  # fails for a null
    lambda t: t.s in ("a", None) or t.kind == 3,
    lambda t: not t.x < 1,
    lambda t: t.at < BEFORE,
    lambda t: t.s is not None and t.s.upper() == "A",  # no condition
    lambda t: t.must % 2 == 0,
]


def behind(chance, stream):
    """A source, perhaps with event time, and what reads it: filters, and something behind them."""
    if chance.random() < 0.5:
        stream = stream.event_time("at", lateness=3)
    parts = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        part = stream
        for _ in range(chance.choice([1, 1, 2, 2, 0])):
            part = part.filter(chance.choice(FILTERS))
        parts.append(behind_filters(chance, part))
    return parts[0] if len(parts) == 1 else parts[0].union(*parts[1:])


class Sum(ab.Operator):
    """A running sum."""

    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.must
        yield (t.kind, self.total)


PAIR = "kind int, value long"


def behind_filters(chance, part):
    kind = chance.randrange(6)
    if kind == 0:
        return part.process(Sum(), by="kind", schema=PAIR)
    if kind == 1:
        return part.filter(lambda t: t.bid is not None).map(lambda t: (t.kind, t.bid["auction"]), schema=PAIR)
    if kind == 2:
        whole = part.filter(lambda t: t.bid is not None).map(
            lambda t: t.bid, schema="auction long, price double, who struct<id: int>"
        )
        return whole.filter(lambda t: t.auction > 3).map(lambda t: (1, t.auction), schema=PAIR)
    if kind == 3:
        renamed = part.select("kind", value="n", bid="bid").filter(lambda t: t.value != 3)
        return renamed.map(lambda t: (t.kind, len(repr(t.bid))), schema=PAIR)
    if kind == 4:
        return part.map(lambda t: (t.kind, len(repr(t))), schema=PAIR)
    return part.select("kind", value="must")


def outcome(run):
    """The rows, and how many tuples each operator took; or the error."""
    entered = Counter()
    original = splitters._entered

    def noted(of):
        found = original(of)
        entered.update(found)
        return found

    try:
        with mock.patch.object(splitters, "_entered", noted), mock.patch.object(file_pieces, "LATE_ROWS_MIN", 0):
            run.run_epochs()
            run.end()
    except AnabranchError as error:
        return type(error).__name__, re.sub(r"epoch \d+", "", str(error)).partition("Nothing of")[0]
    counts = [(each.rows_in, each.rows_out, each.anomalies) for each in run.progress]
    return [repr(row) for row in run.output], counts, entered


@pytest.mark.parametrize("seed", range(EXAMPLES * 3))
def test_programs_over_files_give_the_same(seed, tmp_path):
    chance = chance_of("files", seed)
    epochs, given = [], []
    for number in range(2):
        rows = rows_of(chance, chance.choice([0, 7, 60]), number * 60)
        given.append([tuple(row.values()) for row in rows])
        middle = chance.randint(0, len(rows))
        epochs.append([])
        for at, part in enumerate([rows[:middle], rows[middle:]]):
            path = str(tmp_path / f"{number}-{at}.parquet")
            pq.write_table(pa.Table.from_pylist(part, SCHEMA.arrow), path, row_group_size=chance.choice([3, 10, 100]))
            epochs[-1].append(path)
    state = chance.getstate()
    found = []
    ways = [set(OVER_COLUMNS), set(), {"filters"}, {"filters", "needed"}, set(OVER_COLUMNS) - {"filters"}]
    verify = chance.choice([0.0, 0.0, 0.5])
    for at, columns in enumerate(ways):
        chance.setstate(state)
        stream = behind(chance, from_epochs(given, COLUMNS, name="events"))
        place = tmp_path / str(at)
        place.mkdir()
        run = FilesRun(stream, place, epochs, seed=seed, channels=2, columns=columns, verify=verify)
        found.append(outcome(run))
    assert all(each == found[1] for each in found)
    if isinstance(found[1], tuple) and isinstance(found[1][0], list):
        assert found[1][0] == [repr(row) for row in stream.run_sequential(ends=True)]
