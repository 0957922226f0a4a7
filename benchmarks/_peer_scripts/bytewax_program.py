"""The workloads on bytewax: run in an environment that has bytewax and pyarrow, and nothing of this project.

    bytewax_program.py WORKLOAD INPUT OUTPUT STATE WORKERS

Input are Parquet files, read with pyarrow, a file at a time; output is a CSV file for each worker. State is kept in
bytewax's recovery store (SQLite), with an epoch for every file.
"""

import csv
import datetime
import sys
from decimal import Decimal
from pathlib import Path

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

WORKLOAD, WORKERS = sys.argv[1], int(sys.argv[5])
INPUT, OUTPUT, STATE = Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
EURO = Decimal("0.908")
BID = ("auction", "bidder", "price", "dateTime", "extra")
COLUMNS = {"q1": BID, "q2": ("auction", "price"), "stateful": ("key", "price", "volume")}[WORKLOAD]


def rows_of(path):
    if WORKLOAD == "stateful":
        table = pq.read_table(path, columns=list(COLUMNS))
        return list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))
    bids = pq.ParquetFile(path).read([f"bid.{name}" for name in COLUMNS]).column("bid").combine_chunks()
    bids = bids.filter(bids.is_valid())
    return list(zip(*(bids.field(name).to_pylist() for name in COLUMNS), strict=True))


class Files(StatefulSourcePartition):
    def __init__(self, paths, done):
        self._paths, self._done = paths, done or 0

    def next_batch(self):
        if self._done == len(self._paths):
            raise StopIteration
        self._done += 1
        return rows_of(self._paths[self._done - 1])

    def snapshot(self):
        return self._done


class Directory(FixedPartitionedSource):
    """One partition for each worker. Where order matters there is one in all: bytewax keeps it within a partition."""

    def list_parts(self):
        return [str(at) for at in range(1 if WORKLOAD == "stateful" else WORKERS)]

    def build_part(self, step_id, for_part, resume_state):
        count = len(self.list_parts())
        return Files(sorted(INPUT.glob("*.parquet"))[int(for_part) :: count], resume_state)


class CsvPart(StatelessSinkPartition):
    def __init__(self, number):
        self._file = (OUTPUT / f"{number}.csv").open("w", newline="")
        self._writer = csv.writer(self._file)

    def write_batch(self, items):
        self._writer.writerows(items)

    def close(self):
        self._file.close()


class CsvFiles(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return CsvPart(worker_index)


def vwap(totals, row):
    amount, volume = totals or (0.0, 0.0)
    amount += row[1] * row[2]
    volume += row[2]
    return (amount, volume), (row[0], amount / volume)


def main():
    OUTPUT.mkdir(parents=True)
    STATE.mkdir(parents=True)
    init_db_dir(STATE, 1)
    flow = Dataflow(WORKLOAD)
    rows = op.input("in", flow, Directory())
    if WORKLOAD == "q1":
        rows = op.map("euros", rows, lambda row: (row[0], row[1], row[3], row[4], EURO * row[2]))
    elif WORKLOAD == "q2":
        rows = op.filter("some", rows, lambda row: row[0] % 123 == 0)
    else:
        keyed = op.key_on("key", rows, lambda row: str(row[0]))
        rows = op.map("rows", op.stateful_map("vwap", keyed, vwap), lambda pair: pair[1])
    op.output("out", rows, CsvFiles())
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=datetime.timedelta(seconds=1),
        recovery_config=RecoveryConfig(STATE),
        worker_count_per_proc=WORKERS,
    )


main()
