"""What the tests of all kernels share: the ways a program is run, and what is said about its plan."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as ab
from anabranch.papers.safe_plan import SafePlan, safe_plan
from anabranch.papers.safe_regions import Rules
from anabranch.program.graph import named
from anabranch.testing import ParallelRun, run_sequential

CHANNELS = (1, 2, 4)

Program = Callable[..., ab.Stream]
Rows = Mapping[str, Sequence[Any]]


def built(
    program: Program,
    schemas: Mapping[str, Any],
    rows: Rows,
    epochs: int = 1,
    session: ab.Session | None = None,
) -> ab.Stream:
    """The program over rows in memory, each source cut into so many epochs."""
    return program(
        **{
            name: ab.from_rows(
                rows[name],
                schema,
                rows_per_epoch=max(1, -(-len(rows[name]) // epochs)),
                name=name,
                session=session,
            )
            for name, schema in schemas.items()
        }
    )


def exact(rows: Sequence[Any]) -> list[str]:
    """Rows as text that tells apart what == does not: 1 and 1.0, -0.0 and 0.0."""
    return [repr(row) for row in rows]


def in_parallel(stream: ab.Stream, channels: int, seed: int = 0) -> list[ab.Row]:
    """What the program gives on so many channels, in this process."""
    with tempfile.TemporaryDirectory(prefix="anabranch-kernel-") as checkpoint:
        run = ParallelRun(stream, checkpoint, channels=channels, seed=seed)
        run.run_epochs()
        return run.output


def assert_parallel_is_sequential(stream: ab.Stream, channels: int) -> None:
    """Values and order, for two ways to cut the input into partitions."""
    sequential = run_sequential([stream])[0]
    assert sequential, "a comparison of nothing with nothing"
    for seed in (channels, channels + 100):
        found, wanted = exact(in_parallel(stream, channels, seed)), exact(sequential)
        # pytest does not look into assertions of modules that hold no tests: the message is made here.
        differing = [at for at, pair in enumerate(itertools.zip_longest(found, wanted)) if pair[0] != pair[1]]
        if differing:
            at = differing[0]
            raise AssertionError(
                f"{len(differing)} rows differ with {channels} channels and seed {seed}; the first, {at} of "
                f"{len(wanted)}: {found[at : at + 1]} instead of {wanted[at : at + 1]}"
            )


def on_spark(stream: ab.Stream, channels: int = 2) -> list[ab.Row]:
    """What the program gives on Spark."""
    query = (
        stream.writeStream.format("memory")
        .queryName("kernel")
        .option("channels", channels)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return stream.schema.rows(query.sink.table().columns)


def paper_plan(stream: ab.Stream, rules: Rules | None = None) -> SafePlan:
    """What the compiler of *Safe* makes of the program, by the rules of the paper alone."""
    return safe_plan(named([stream._node]), rules)
