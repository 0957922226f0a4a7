"""The workloads on pathway: run in an environment that has pathway and pyarrow, and nothing of this project.

    pathway_program.py WORKLOAD INPUT OUTPUT STATE WORKERS

Input are Parquet files, read with pyarrow and handed over row by row by a Python connector; output is a CSV file of
changes. Pathway has no order of rows: the running value of a key is that of a group, told again whenever a batch of its
own changes it, so there is not a row for each row. State is kept by pathway's persistence.
"""

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

WORKLOAD, WORKERS = sys.argv[1], int(sys.argv[5])
INPUT, OUTPUT, STATE = Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
os.environ["PATHWAY_THREADS"] = str(WORKERS)

import pathway as pw  # noqa: E402 - it reads the number of threads when it is imported

BID = ("auction", "bidder", "price", "dateTime", "extra")
COLUMNS = {"q1": BID, "q2": ("auction", "price"), "stateful": ("key", "price", "volume")}[WORKLOAD]
KINDS = {"key": int, "auction": int, "bidder": int, "price": int, "dateTime": str, "extra": str, "volume": float}
if WORKLOAD == "stateful":
    KINDS["price"] = float


class Files(pw.io.python.ConnectorSubject):
    def run(self):
        for path in sorted(INPUT.glob("*.parquet")):
            if WORKLOAD == "stateful":
                table = pq.read_table(path, columns=list(COLUMNS))
                columns = [table.column(name).to_pylist() for name in COLUMNS]
            else:
                bids = pq.ParquetFile(path).read([f"bid.{name}" for name in COLUMNS]).column("bid").combine_chunks()
                bids = bids.filter(bids.is_valid())
                columns = [bids.field(name).to_pylist() for name in COLUMNS]
                pairs = zip(COLUMNS, columns, strict=True)
                columns = [list(map(str, each)) if KINDS[name] is str else each for name, each in pairs]
            for row in zip(*columns, strict=True):
                self.next(**dict(zip(COLUMNS, row, strict=True)))
            self.commit()


def main():
    OUTPUT.mkdir(parents=True)
    schema = pw.schema_from_types(**{name: KINDS[name] for name in COLUMNS})
    rows = pw.io.python.read(Files(), schema=schema, name="files")
    if WORKLOAD == "q1":
        rows = rows.select(rows.auction, rows.bidder, rows.dateTime, rows.extra, price=rows.price * 0.908)
    elif WORKLOAD == "q2":
        rows = rows.filter(rows.auction % 123 == 0).select(rows.auction, rows.price)
    else:
        groups = rows.groupby(rows.key)
        totals = groups.reduce(
            rows.key, amount=pw.reducers.sum(rows.price * rows.volume), volume=pw.reducers.sum(rows.volume)
        )
        rows = totals.select(totals.key, vwap=totals.amount / totals.volume)
    pw.io.csv.write(rows, str(OUTPUT / "0.csv"))
    backend = pw.persistence.Backend.filesystem(str(STATE))
    pw.run(persistence_config=pw.persistence.Config(backend), monitoring_level=pw.MonitoringLevel.NONE)


main()
