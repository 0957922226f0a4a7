"""The workloads on PyFlink: run in an environment that has apache-flink, and nothing of this project.

    flink_program.py WORKLOAD INPUT OUTPUT STATE WORKERS

Input are files of JSON lines (the package brings no reader of Parquet), output are CSV files. Queries without state
are SQL, which runs in the JVM; the stateful one is a function of Python for each row, by key. Checkpoints every second.
"""

import sys
from pathlib import Path

from pyflink.common import Configuration, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

WORKLOAD, WORKERS = sys.argv[1], int(sys.argv[5])
INPUT, OUTPUT, STATE = Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
COLUMNS = {
    "q1": "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` STRING, extra STRING",
    "q2": "auction BIGINT, price BIGINT",
    "stateful": "`key` BIGINT, price DOUBLE, volume DOUBLE",
}[WORKLOAD]
QUERIES = {
    "q1": (
        "auction BIGINT, bidder BIGINT, `dateTime` STRING, extra STRING, price DECIMAL(23, 3)",
        "SELECT auction, bidder, `dateTime`, extra, CAST(0.908 * price AS DECIMAL(23, 3)) FROM input",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM input WHERE MOD(auction, 123) = 0"),
    "stateful": ("`key` BIGINT, vwap DOUBLE", "SELECT * FROM vwaps"),
}


class Vwap(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        kind = Types.TUPLE([Types.DOUBLE(), Types.DOUBLE()])
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals", kind))

    def process_element(self, value, ctx):
        amount, volume = self.totals.value() or (0.0, 0.0)
        amount += value[1] * value[2]
        volume += value[2]
        self.totals.update((amount, volume))
        yield value[0], amount / volume


def main():
    settings = Configuration()
    settings.set_string("execution.checkpointing.interval", "1s")
    settings.set_string("execution.checkpointing.dir", STATE.resolve().as_uri())
    settings.set_string("python.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(WORKERS)
    tables = StreamTableEnvironment.create(environment)
    place = INPUT.resolve().as_uri()
    files = f"WITH ('connector' = 'filesystem', 'path' = '{place}', 'format' = 'json')"
    tables.execute_sql(f"CREATE TABLE input ({COLUMNS}) {files}")
    if WORKLOAD == "stateful":
        kind = Types.ROW_NAMED(["key", "vwap"], [Types.LONG(), Types.DOUBLE()])
        rows = tables.to_data_stream(tables.from_path("input"))
        vwaps = rows.key_by(lambda row: row[0], key_type=Types.LONG()).process(
            Vwap(), output_type=Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        )
        from pyflink.common import Row

        vwaps = vwaps.map(lambda pair: Row(*pair), output_type=kind)
        tables.create_temporary_view("vwaps", vwaps)
    columns, query = QUERIES[WORKLOAD]
    out = f"WITH ('connector' = 'filesystem', 'path' = '{OUTPUT.resolve().as_uri()}', 'format' = 'csv')"
    tables.execute_sql(f"CREATE TABLE output ({columns}) {out}")
    tables.execute_sql(f"INSERT INTO output {query}").wait()


main()
