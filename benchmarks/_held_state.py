"""Checkpoints that hold millions of keys, as a query that ran for long would have left them, made in seconds.

A query is run for a few epochs, so that Spark's logs, the program's description and the manifests are there and
genuine. Then the segments of its last manifest are replaced: per channel one large merged segment that holds every
key, and over it the smaller ones that further epochs leave behind. How many of those there are and of what size is
not chosen here: the policy of `anabranch.state.compaction` is asked, epoch by epoch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.hashing import hash_columns
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.compaction import compactable
from anabranch.state.files import LocalFiles
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import checksum_of, write_segment

HISTORY_EPOCHS = 43
"""Epochs since the large merge: 2 · 16 + 2 · 4 + 3, so that every tier that fills up has some segments."""


def segment_rows(keys: int, touched: int, epochs: int = HISTORY_EPOCHS) -> list[int]:
    """Rows of the segments of a channel with so many keys that touches some in every epoch, newest first."""
    records: list[dict[str, int]] = [{"rows": keys, "epochs": 0}]
    for _ in range(epochs):
        records.insert(0, {"rows": min(touched, keys), "epochs": 1})
        found = compactable([record["rows"] for record in records])
        if found is not None:
            merged, records = records[: found[1]], records[found[1] :]
            covered = sum(record["epochs"] for record in merged)
            # Keys are touched at random, so some were touched more than once.
            rows = keys if not records else round(keys * (1 - (1 - touched / keys) ** covered))
            records.insert(0, {"rows": rows, "epochs": covered})
    return [record["rows"] for record in records]


@dataclasses.dataclass(frozen=True)
class Channel:
    """The keys of one channel, with their hashes."""

    number: int
    keys: np.ndarray
    hashes: np.ndarray

    def segment(self, rows: int, fields: list[str], random: np.random.Generator) -> pa.Buffer:
        at = np.arange(len(self.keys))
        if rows < len(at):
            at = np.sort(random.choice(len(at), rows, replace=False))
        columns = [random.random(rows).tolist() for _ in fields]
        return write_segment(self.hashes[at], self.keys[at].tolist(), fields, columns)


def channels_of(held: int, function: PartitioningFunction) -> list[Channel]:
    keys = np.arange(held, dtype=np.int64)
    hashes = hash_columns([pa.array(keys)])
    owner = function.route(hashes)
    return [Channel(number, keys[owner == number], hashes[owner == number]) for number in range(function.channels)]


def fill(checkpoint: Path, operator: str, fields: list[str], held: int, touched: int, channels: int) -> list[int]:
    """Give the query whose checkpoint this is the keys 0 … held - 1; the rows of a channel's segments."""
    files = LocalFiles(str(checkpoint / "anabranch"))
    log = Checkpoint(files)
    before = log.latest()
    random = np.random.default_rng(held)
    records: list[SegmentRecord] = []
    layout = before.facts.owners.by_operator()[operator]
    (route,) = [each.routes[operator] for each in before.facts.owners.regions.values() if operator in each.routes]
    assert layout.channels == channels, f"the query ran with {layout.channels} channels, not {channels}"
    for channel in channels_of(held, layout.function):
        sizes = segment_rows(len(channel.keys), touched // channels)
        assert before.epoch + 1 >= len(sizes), f"run {len(sizes)} epochs first: each segment needs one of its own"
        for age, rows in enumerate(sizes):
            is_oldest = age == len(sizes) - 1
            last = before.epoch - age
            data = channel.segment(rows, fields, random)
            name = f"{operator}/{last:012d}-{channel.number:05d}-{age:012x}.segment"
            files.write(f"state/{name}", memoryview(data))
            records.append(
                SegmentRecord(
                    name=name,
                    operator=operator,
                    channel=channel.number,
                    generation=layout.generation,
                    route=route,
                    first=0 if is_oldest else last,
                    last=last,
                    rows=rows,
                    bytes=data.size,
                    checksum=checksum_of(data),
                )
            )
    manifest = Manifest(before.epoch, {operator: records}, before.facts, before.owner, before.program)
    assert log.query is not None
    files.write(f"epochs/{before.epoch:012d}.json", manifest.to_bytes(log.query))
    return sizes


def input_of(checkpoint: Path) -> Path:
    """Where the query of a checkpoint finds its input."""
    return checkpoint.with_name(f"{checkpoint.name}-in")


def copy(checkpoint: Path, to: Path) -> None:
    """Another query with the same state and history. Segments never change, so both have the same files."""

    def link(source: str, target: str) -> None:
        if source.endswith(".segment"):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(checkpoint, to, copy_function=link, ignore=shutil.ignore_patterns(".*.crc"))
    shutil.copytree(input_of(checkpoint), input_of(to))
    # Spark does not run two queries of one id at once, and looks for the last input again when it starts.
    (to / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    for log in (to / "sources" / "0").iterdir():
        log.write_text(log.read_text().replace(str(input_of(checkpoint)), str(input_of(to))))
