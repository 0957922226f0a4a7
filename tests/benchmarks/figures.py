"""What every benchmark tells at its end, and how tests have it from one in miniature."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.__main__ import main

# The figures that tools and documents read; a benchmark may have more.
FIGURES: dict[str, set[str]] = {
    "compiler": {"unsound", "found_safe", "compile_500_s", "compile_500_processor_s", "mutants"},
    "control": {"traces", "worst_vs_paper", "worst_run_vs_paper", "worst_handled_steady", "oscillating", "simulated"},
    "damage": {"damages", "silent", "crashed", "raw_errors", "recovered", "stopped"},
    "durability": {"process_ms", "power_ms", "flushes_per_epoch", "flush_ms", "flushing_ms_per_epoch"},
    "elastic": {
        "elastic_vs_best_fixed",
        "settling_periods_max",
        "oscillations",
        "handled_sine",
        "handled_step",
        "spark_vs_best_fixed",
        "spark_settling_periods",
        "spark_reversals",
        "congestion_saturated",
        "congestion_under_loaded",
        "channels_slow_sink",
    },
    "epoch": {"fixed_vs_bare", "fixed_vs_bare_cpu", "per_level_s", "py4j_calls"},
    "growth": {"bytes_per_epoch_1000", "share_of_whole_1000", "bytes_per_epoch_10000"},
    "merger_speed": {"sequence_4_steady_kips", "indexed_32_batched_kips"},
    "migration": {"pause_ratio_spark", "pause_ms", "pause_ms_worst", "moved_vs_minimum", "keys_compared"},
    "nexmark": {
        "vs_one_thread_min",
        "vs_one_thread_median",
        "vs_spark_native_median",
        "two_channels_speedup_median",
    },
    "operators": {
        "vs_best_fixed_min",
        "follows_external_load",
        "http_vs_best",
        "http_periods",
        "pool_overhead_us",
        "order_overhead",
        "level0_overhead",
    },
    "ordering": {
        "seqno_overhead",
        "pulse_overhead",
        "shuffle_overhead",
        "seqno_overhead_light",
        "seqno_overhead_python",
        "shuffle_overhead_python_light",
        "order_ns_per_tuple",
        "source_order_light",
        "selectivity",
        "punctuation",
        "scale32_stateless",
        "scale32_stateful",
        "scale32_shuffle",
    },
    "partitioning": {
        "lll",
        "eq11",
        "explicit",
        "counters",
        "fast_readj_speedup",
        "pruned_readj_speedup",
        "lookup_cost",
    },
    "resources": {
        "sticky",
        "fetched_bytes_steady",
        "cpal_added_latency_epochs",
        "cpa_vs_direct",
        "recovery_standby_vs_checkpoint",
        "driver_bytes_per_state_byte",
        "correlated_vs_even",
        "usable_vs_even",
    },
    "simulator": {"planted_bugs", "planted_bugs_found", "worlds_per_cpu_minute", "worlds_failed"},
    "skew": {"skew_gain", "skew_gain_uniform", "busiest", "speedup", "hot_key_rows_per_second", "splitter_ns"},
    "soundness": {"programs", "unsound", "found_safe", "needless_refusals", "bodies_fuzzed"},
    "soak": {
        "spark_driver_mib_growth",
        "spark_jvm_mib_growth",
        "spark_worker_mib_growth",
        "spark_seconds_growth",
        "spark_restarts_recovery_seconds_growth",
        "restarts_recovery_seconds_growth",
        "keys_seconds_growth",
        "is_right",
    },
    "state": {"slowdown_held", "checkpoint_overhead"},
    "peers": {"systems", "passed_over", "vs"},
    "verify": {"cost", "tuples_again", "tuples", "differences", "rounds"},
    "watch": {"rows_per_task", "task_ms", "call_us", "first_ms", "sample", "rounds"},
    "time": {"watermark_overhead", "timer_slowdown_held"},
    "stateful": {
        *("ratio_transform_with_state", "ratio_apply_in_pandas", "ratio_native"),
        *("ratio_transform_with_state_cpu", "ratio_apply_in_pandas_cpu", "ratio_native_cpu"),
    },
}


def figures_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(list(arguments)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("machine at the start: load average")
    assert any(line.startswith("machine at the end: load average") for line in lines)
    return json.loads(lines[-1].removeprefix("figure: "))
