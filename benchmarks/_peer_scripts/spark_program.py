"""The workloads on Spark's own operators, on Anabranch, and on one thread: run in this project's environment.

    spark_program.py SYSTEM WORKLOAD INPUT OUTPUT STATE WORKERS

Everything reads the same Parquet files, four in an epoch, and writes Parquet.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SYSTEM, WORKLOAD, WORKERS = sys.argv[1], sys.argv[2], int(sys.argv[6])
INPUT, OUTPUT, STATE = Path(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5])
FILES = 4


def one_thread():
    from benchmarks import _nexmark_plain as plain
    from benchmarks._peer_plain import run_nexmark, run_stateful

    OUTPUT.mkdir(parents=True)
    if WORKLOAD == "stateful":
        run_stateful(INPUT, OUTPUT, FILES)
    else:
        run_nexmark(plain, WORKLOAD, INPUT, OUTPUT, FILES)


def on_spark():
    from pyspark import cloudpickle

    import examples.nexmark.events
    import examples.nexmark.queries
    from benchmarks import _vwap_systems, nexmark
    from benchmarks._spark import spark_session

    for module in (examples.nexmark.events, examples.nexmark.queries, _vwap_systems):
        cloudpickle.register_pickle_by_value(module)  # Spark's Python workers need not find this folder
    settings = {"spark.sql.shuffle.partitions": str(WORKERS)}
    if WORKLOAD == "stateful":
        pandas = _vwap_systems.IN_PANDAS
        system = pandas if pandas.name == SYSTEM else _vwap_systems.SYSTEMS[SYSTEM]
        with spark_session(WORKERS, STATE, {**settings, **system.settings}) as spark:
            rows = _vwap_systems.read_trades(spark, INPUT)
            system.start(rows, OUTPUT, STATE / "checkpoint").awaitTermination()
        return
    size = nexmark.Size((WORKLOAD,), 0, 0, FILES, 1, False)
    run = nexmark.run_ours if SYSTEM == "anabranch" else nexmark.run_native
    with spark_session(WORKERS, STATE, settings) as spark:
        run(spark, WORKLOAD, INPUT, OUTPUT.parent, size)


def main():
    if SYSTEM == "one_thread":
        one_thread()
    else:
        STATE.mkdir(parents=True)
        on_spark()


main()
