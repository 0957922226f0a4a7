"""One object in two places of a key's state stays one, through epochs, restarts and rescaling; also to be looked at."""

import numpy as np
import pytest

import anabranch as ab
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.state.test_user_objects import Declared, OwnDict, Plain


class Shares(ab.Operator):
    """What its fields hold is one object here and there, in every way."""

    first = ab.state(default=None)
    second = ab.state(factory=list)
    third = ab.state(factory=dict)
    table = ab.state(default=None)
    row = ab.state(default=None)
    cells = ab.state(default=None)
    stored = ab.store()

    def process(self, t):
        if self.first is None:
            self.first = Plain(t.x)
            self.second.append(self.first)
            self.third["self"] = self.third
            self.third["list"] = self.second
            self.table = np.zeros((2, 3), order="F" if t.x % 2 else "C")
            self.row, self.cells = self.table[1], self.table.T[::2, :1]
            self.stored.put("list", self.second)
            self.stored.put("first", self.first)
        self.first.n += t.x
        self.second.append(t.x)
        self.table[1, 0] += t.x
        self.row[1] += 1
        self.cells[0, 0] += 2
        self.stored.get("list").append("s")
        self.stored.get("first").n += 1
        inner = self.third["self"]["self"]["list"]
        yield (t.k, self.second[0].n, len(inner), f"{self.table.tolist()} {self.row.tolist()} {self.cells.tolist()}")


@pytest.mark.parametrize("operator", [OwnDict, Declared, Shares])
def test_what_is_shared_stays_so_and_verify_sees_no_difference(operator, tmp_path):
    rows = [(f"k{n * 7 % 5}", n) for n in range(60)]

    def make():
        stream = ab.from_rows(rows, "k string, x long", rows_per_epoch=10)
        more = {} if operator is OwnDict else {"by": "k"}
        schema = "k string, n long, c long, f string" if operator is Shares else "k string, n long, c string, f long"
        return stream.process(operator(), schema=schema, name="op", **more)

    expected = make().run_sequential()
    verified = ParallelRun(make(), str(tmp_path / "verified"), channels=2, fresh_tasks=True, verify=1.0)
    verified.run_epochs()
    assert verified.output == expected
    written = {}
    for number in range(6):
        run = ParallelRun(make(), str(tmp_path), channels=1 + number % 3, seed=number, written=written)
        run.run_epochs(number, number)
    assert run.output == expected
    if operator is Shares:
        state = CheckpointReader(LocalFiles(f"{tmp_path}/anabranch")).value("op", "k1")
        assert repr(state["first"]).startswith("{'n': ") and "'s'" in repr(state["second"])


def test_arrays_in_one_object_share_their_memory_after_an_epoch(tmp_path):
    class Views:
        def __init__(self):
            self.table = np.zeros((4, 4))
            self.parts = {}

        def __call__(self, t):
            if t.x not in self.parts:
                hidden = np.zeros(8)  # nobody keeps it by a name of its own
                self.parts[t.x] = (self.table[t.x], hidden[:6], hidden[2:])
            row, low, high = self.parts[t.x]
            self.table += 1
            row[0] += 1
            low[3] += 1
            yield (t.x, float(self.table.sum() + row.sum()), float(high.sum()))

    stream = ab.from_rows([(n % 3,) for n in range(20)], "x long", rows_per_epoch=4)
    stream = stream.process(Views(), schema="x long, a double, b double")
    run = ParallelRun(stream, str(tmp_path), channels=2, fresh_tasks=True, verify=1.0)
    run.run_epochs()
    assert run.output == stream.run_sequential()
