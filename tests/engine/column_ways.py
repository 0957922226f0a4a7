"""Programs over columns, in turns: from one checkpoint, each epoch with other channels and other columns' ways."""

import datetime
import os
import re
from decimal import Decimal
from unittest import mock

from hypothesis import Phase
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg
from anabranch.engine.worker import tasks
from anabranch.errors import AnabranchError
from anabranch.program.options import OVER_COLUMNS
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # cases are seeds: nothing to shrink
EXAMPLES = int(os.environ.get("ANABRANCH_PROGRAMS", "100")) // 5
COLUMNS = "k long, s string, at timestamp, n long, small int, name string, x double, d decimal(20, 2), extra string"
OTHERS = (
    "k int, s date, at timestamp_ntz, n int, small tinyint, name timestamp, x float, d decimal(9, 2), "
    "extra struct<a: int, b: array<string>>"
)
STRICT = COLUMNS.replace("n long", "n smallint").replace("k long", "k boolean")
SCHEMAS = [COLUMNS, COLUMNS, OTHERS, STRICT]
START = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
NULL_KEYS = 0.3  # as many nulls, also where they are keys
BATCHES = (tasks.BATCH_ROWS, 3, 11)  # tuples of a channel that are worked off together: else all of these epochs
HUGE = [2**63 - 1, -(2**63), 2**62, -(2**62), 2**61]

low = lambda t: t.n < 3  # noqa: E731
between = lambda t: -2 <= t.n < 5 and t.small != 0  # noqa: E731
named = lambda t: t.name == "b"  # noqa: E731
AGGREGATIONS = {
    "count": agg.count(),
    "names": agg.count("name"),
    "lows": agg.count().where(low),
    "betweens": agg.count().where(between),
    "named": agg.sum("n").where(named),
    "sum": agg.sum("n"),
    "tiny": agg.sum("small"),
    "mean": agg.avg("n"),
    "least": agg.min("n"),
    "most": agg.max("n"),
    "last_time": agg.max("at"),
    "first_name": agg.min("name"),
    "last_name": agg.max("name").where(low),
    "sizes": agg.distinct("n"),
    "different": agg.distinct("name").where(between),
    "floats": agg.sum("x"),
    "most_x": agg.max("x"),
    "decimals": agg.sum("d"),
    "all": agg.collect("n"),
}
USUAL = [name for name in AGGREGATIONS if name not in ("floats", "most_x", "decimals", "all")]
KEYS = ["k", "s", ["k", "s"], ["s", ab.key(lambda t: f"{t.at:%M}", "minute")]]


def rows(chance, count, begin, *, nulls=0.0, huge=0.0, spread=1):
    """Tuples whose times rise, more or less."""

    def maybe(value):
        return None if chance.random() < nulls else value

    for number in range(count):
        at = START + datetime.timedelta(seconds=(begin + number) * spread * 0.3 + chance.uniform(-6, 6))
        n = chance.choice(HUGE) if chance.random() < huge else chance.randrange(-4, 9)
        word = chance.choice(["", "a", "é", "\U0001f600"])
        x = chance.choice([0.1, -0.0, 0.0, 1e16, float("nan"), -1.5])
        yield (
            maybe(chance.randrange(6)) if nulls and chance.random() < 0.1 else chance.randrange(6),
            maybe(word) if nulls == NULL_KEYS else word,
            at,
            maybe(n),
            maybe(chance.randrange(-1, 2)) if nulls else chance.randrange(-1, 2),
            maybe(chance.choice(["b", "a", "\uffff", "\U00010000"])),
            x,
            Decimal(chance.randrange(-999, 999)) / 100,
            "extra",
        )


def fitting(row, columns):
    """A tuple as one of other columns."""
    k, s, at, n, small, name, x, d, extra = row
    if columns == COLUMNS:
        return row
    if columns == STRICT:
        return None if k is None else k > 2, s, at, None if n is None else max(-(2**15), min(n, 2**15 - 1)), *row[4:]
    n = None if n is None else max(-(2**31), min(n, 2**31 - 1))
    day = None if s is None else datetime.date(1969, 12, 30) + datetime.timedelta(days=len(s.encode()))
    begin = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=datetime.UTC)
    moment = None if name is None else begin + datetime.timedelta(microseconds=ord(name[0]) * 10**6 - 1)
    extra = None if n == 3 else {"a": n, "b": [extra, None]}
    return k, day, at.replace(tzinfo=None), n, small, moment, x, d, extra


def epochs_of(chance, columns, sizes, step, **more):
    """Epochs of tuples with some columns."""
    return [[fitting(row, columns) for row in rows(chance, size, step * at, **more)] for at, size in enumerate(sizes)]


def outcome(run):
    try:
        return [repr(row) for row in run()]
    except AnabranchError as error:
        text = re.sub(r",? (in )?epoch \d+", "", str(error))
        return type(error).__name__, text.partition("The epoch failed")[0].partition("Nothing of the epoch")[0].strip()


def in_parallel(stream, folder, ways, ends=True, **more):
    """Run from one checkpoint, each epoch with other channels, columns and sizes of batches."""
    written = {}
    for number, (channels, columns, seed) in enumerate(ways):
        run = ParallelRun(stream, folder, channels=channels, seed=seed, written=written, columns=columns, **more)
        with mock.patch.object(tasks, "BATCH_ROWS", BATCHES[seed % len(BATCHES)]):
            run.run_epochs(number, number)
            if ends and number == len(ways) - 1:
                run.end()
    return run.output


some = st.sets(st.sampled_from(OVER_COLUMNS)) | st.just(set(OVER_COLUMNS))
arounds = st.fixed_dictionaries(
    {
        "columns": st.sampled_from(SCHEMAS),
        "policy": st.sampled_from(["fail", "fail", "skip"]),
        "verify": st.sampled_from([0.0, 0.0, 0.0, 0.5]),
        "ends": st.booleans(),
    }
)
"""What a program runs with: its columns, what becomes of calls that fail, how many keys are run again."""
ways = st.lists(st.tuples(st.integers(1, 3), some, st.integers(0, 99)), min_size=2, max_size=4)


def state_of(stream, folder):
    """What a checkpoint holds of an operator, by key."""
    return states_in(folder)[stream._node.name]


def states_in(folder):
    """What a checkpoint holds: operator → key → fields."""
    reader = CheckpointReader(LocalFiles(f"{folder}/anabranch"))
    names = [each.operator for each in reader.stores()]
    return {
        name: {repr(key): list(map(shown, fields.values())) for key, fields in reader.items(name)} for name in names
    }


def shown(value):
    """A value of a field; the order of a set's is nobody's."""
    return sorted(map(repr, value)) if isinstance(value, set) else repr(value)


def in_all_ways(tmp_path_factory, stream, ways, ends=True, verify=0.0, clocks_ms=(), **_):
    """What the ways give and one thread, then twice what channels give that take tuples one by one, to be compared.

    Rows or the error, and the state that is left.
    """
    places = [str(tmp_path_factory.mktemp("checkpoint")) for _ in range(2)]
    more = {"ends": ends, "clocks_ms": clocks_ms}
    plain = [(1, set(), 0)] * len(ways)
    expected = outcome(lambda: in_parallel(stream, places[0], plain, **more))
    found = outcome(lambda: in_parallel(stream, places[1], ways, verify=verify, **more))
    alone = outcome(lambda: stream.run_sequential(ends=True, clocks_ms=clocks_ms)) if ends else expected
    # An epoch that failed leaves nothing, and how many were run before it is nobody's business.
    states = [states_in(place) if isinstance(expected, list) else {} for place in places]
    return (found, alone, states[1]), (expected, expected, states[0])
