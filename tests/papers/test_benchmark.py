"""The benchmark of the simulator, in small."""

from __future__ import annotations

import json

from benchmarks import simulator


def test_the_counts_of_the_report_are_taken_over_if_there_is_one(tmp_path, monkeypatch):
    report = tmp_path / "reproduction.json"
    monkeypatch.setattr(simulator, "REPORT", report)
    assert simulator.report_of_figures() == {}
    report.write_text(json.dumps({"figures": 30, "met_or_better": 25, "rows": []}))
    assert simulator.report_of_figures() == {"figures": 30, "met_or_better": 25}
