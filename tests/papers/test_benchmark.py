"""The benchmark of the simulator, in small."""

from __future__ import annotations

import json

from anabranch.papers.machine import World
from anabranch.papers.machine.oracle import sequential
from benchmarks import simulator
from benchmarks._real_region import RealRegion


def test_real_threads_give_the_output_of_one_thread_and_about_the_simulated_throughput():
    workload = simulator.WORKLOADS["partitioned, at most one, always more"]
    real = RealRegion(workload).run(2.5)
    assert real.output == sequential(workload, real.stream).delivered
    assert real.channels[1][1] == 2
    simulated = World(workload).run(2.5)
    # Loose: the machine that runs tests may be busy. The benchmark is what measures.
    assert 0.5 * simulated.throughput < real.throughput < 1.2 * simulated.throughput


def test_the_counts_of_the_report_are_taken_over_if_there_is_one(tmp_path, monkeypatch):
    report = tmp_path / "reproduction.json"
    monkeypatch.setattr(simulator, "REPORT", report)
    assert simulator.report_of_figures() == {}
    report.write_text(json.dumps({"figures": 30, "met_or_better": 25, "rows": []}))
    assert simulator.report_of_figures() == {"figures": 30, "met_or_better": 25}
