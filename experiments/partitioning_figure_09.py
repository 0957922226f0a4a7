"""*Partitioning*, Figure 9: counters and explicit keys by the frequency threshold scaler σ."""

from __future__ import annotations

from benchmarks._partitioning_world import Setting
from experiments._partitioning import sizes
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_most, holds, near


def run(quick: bool) -> Reproduction:
    sigmas = (1.0, 0.25, 0.1) if quick else (1.0, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
    found = {letters: [sizes(Setting(letters, sigma=sigma)) for sigma in sigmas] for letters in ("LCL", "LLL", "LQL")}
    default = sigmas.index(0.1)
    explicit = [found["LCL"][i][1] for i in range(len(sigmas))]
    statements = (
        near("LCL, σ = 0.1: around 2 500 counters", 2500, found["LCL"][default][0], better="lower"),
        near("LQL: 50 000 counters at σ = 0.1", 50_000, found["LQL"][default][0]),
        near("around 50 explicit keys at σ = 0.1", 50, float(explicit[default]), better="lower"),
        holds(
            "the counter grows as the threshold gets smaller",
            all(a[0] < b[0] for a, b in zip(found["LCL"], found["LCL"][1:], strict=False)),
            " → ".join(f"{counters:.0f}" for counters, _ in found["LCL"]),
        ),
        at_most("explicit keys between 1 and 500: largest", 500, float(max(explicit))),
        holds(
            "explicit keys are the same for all resource functions",
            all(abs(found["LQL"][i][1] - explicit[i]) <= max(2, 0.05 * explicit[i]) for i in range(len(sigmas))),
            ", ".join(f"{found['LQL'][i][1]} / {explicit[i]}" for i in range(len(sigmas))) + " (LQL / LCL)",
        ),
    )
    return Reproduction(
        "impact of σ on the size of the function",
        "z = 1, N = 10, |D| = 10⁶; a lossy counter (ε = 0.1 δ) over 10⁶ random rows, mean size along the way",
        statements,
        (
            Table.of(
                "counters / explicit keys",
                ("σ", *found),
                [
                    (f"{sigma:g}", *(f"{line[i][0]:.0f} / {line[i][1]}" for line in found.values()))
                    for i, sigma in enumerate(sigmas)
                ],
            ),
        ),
        (
            Panel(
                "counters (lines) and explicit keys (dashed)",
                "σ",
                "counters",
                {
                    **{f"{x} counters": Line(sigmas, [c for c, _ in found[x]]) for x in found},
                    **{f"{x} explicit": Line(sigmas, [e for _, e in found[x]], True, right=True) for x in found},
                },
                x_log=True,
                y_log=True,
                y_right="explicit keys",
            ),
        ),
    )
