"""What must hold of a simulated run, whatever happened in it. Shares no code with what it checks.

| complaint | it means |
|---|---|
| output | a sink did not get, tuple by tuple, what one thread would have delivered over the same epochs |
| once | an epoch was delivered in two versions, committed twice or never, or a micro-batch was skipped or taken twice |
| state | a key's state in the checkpoint is not that of one thread |
| owners | a key was written by a channel that does not own it, or by two channels in one epoch |
| manifests | epochs, generations or times went backwards, or a manifest names a file that is not there |
| asked | a rescaling by hand was forgotten |
| bounds | a region has channels outside of what the user allowed |
| leaks | files that nothing refers to were left behind |

The oracle is `engine/sequential.py`, fed with the micro-batches and the times that the manifests say. State is read
from the segments as what they are, Arrow files: of all values of a key the one of the latest epoch counts. Only the
codec of values is the product's own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from anabranch.engine.sequential import SequentialRun
from anabranch.program.graph import Keyed, Node, upstream
from anabranch.sim.ledger import Asked, Ledger, WatchedFiles
from anabranch.sim.owners import check_records, rows_of
from anabranch.state.codec import decode
from anabranch.state.deltas import applied, is_delta
from anabranch.state.state_columns import decoded

RoutedBy = Callable[[str, int, Any], int]
"""Operator, hash of a stored key, the key → the hash it is routed by, which may be that of a part of it."""


def check_manifests(ledger: Ledger, files: WatchedFiles | None, kept: int = 1) -> list[str]:
    """Epochs, generations and times only go forward; if there are files, what the last manifests name is there."""
    complaints = [f"manifests: {problem}" for problem in ledger.damaged]
    for before, after in pairwise(ledger.manifests):
        if after["epoch"] != before["epoch"] + 1:
            complaints.append(f"once: after epoch {before['epoch']} epoch {after['epoch']} was committed")
        for fact in ("clock_ms", "batch", "generation"):
            if after["facts"][fact] < before["facts"][fact]:
                complaints.append(
                    f"manifests: {fact} went from {before['facts'][fact]} to {after['facts'][fact]} "
                    f"in epoch {after['epoch']}"
                )
    newest = ledger.manifests[-1]["epoch"] if ledger.manifests else 0
    for manifest in [each for each in ledger.manifests if each["epoch"] > newest - kept] if files is not None else ():
        for records in manifest["segments"].values():
            for record in records:
                if files is not None and files.read(f"state/{record['name']}") is None and not record.get("transient"):
                    complaints.append(f"manifests: {record['name']} of epoch {manifest['epoch']} is not there")
    return complaints


def check_once(ledger: Ledger) -> list[str]:
    """Every micro-batch is committed, once; an epoch that was delivered again was the same."""
    complaints = []
    committed = [manifest["facts"]["batch"] for manifest in ledger.manifests]
    missing = [batch for batch in ledger.batches if batch not in committed]
    if missing:
        complaints.append(f"once: micro-batches {missing} were never committed")
    delivered: dict[tuple[int, int], tuple[str, ...]] = {}
    for each in ledger.deliveries:
        first = delivered.setdefault((each.output, each.epoch), each.rows)
        if first != each.rows:
            complaints.append(
                f"once: epoch {each.epoch} was delivered in two versions: {_difference(first, each.rows)}"
            )
    return complaints


def oracle(ledger: Ledger, ends: Sequence[Node]) -> tuple[SequentialRun, dict[int, list[list[str]]]]:
    """What one thread does with the same epochs: the run, and the rows of every output by epoch."""
    run = SequentialRun(list(ends))
    taken = -1
    by_epoch: dict[int, list[list[str]]] = {}
    lengths = [0] * len(run.outputs)
    for manifest in ledger.manifests:
        run.clock_ms = manifest["facts"]["clock_ms"]
        batch = manifest["facts"]["batch"]
        # An epoch that only takes what was fed back has the number of the micro-batch before it.
        run.epoch({} if batch <= taken else ledger.batches[batch])
        taken = max(taken, batch)
        by_epoch[manifest["epoch"]] = [
            [repr(row) for row in output[start:]] for output, start in zip(run.outputs, lengths, strict=True)
        ]
        lengths = [len(output) for output in run.outputs]
    return run, by_epoch


def check_output(ledger: Ledger, by_epoch: Mapping[int, list[list[str]]]) -> list[str]:
    """Every output is that of one thread, epoch by epoch."""
    latest = {(each.output, each.epoch): each.rows for each in ledger.deliveries}
    for epoch, outputs in by_epoch.items():
        for output, expected in enumerate(outputs):
            found = latest.get((output, epoch), ())
            if list(found) != expected:
                return [f"output: {output} of epoch {epoch}: {_difference(expected, found)}"]
    extra = sorted({epoch for (_, epoch), rows in latest.items() if rows} - by_epoch.keys())
    return [f"output: epochs {extra} were delivered and never committed"] if extra else []


def _difference(expected: Sequence[str], found: Sequence[str]) -> str:
    for at, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"tuple {at} should be {one} and is {other}"
    return f"{len(expected)} tuples should come and {len(found)} did"


def check_state(ledger: Ledger, files: WatchedFiles, run: SequentialRun, ends: Sequence[Node]) -> list[str]:
    """The state of every key is that of one thread."""
    if not ledger.manifests:
        return []
    segments = ledger.manifests[-1]["segments"]
    complaints = []
    for node in upstream(*ends):
        logic = node.logic
        if not isinstance(logic, Keyed) or logic.transient or logic.time_to_live_ms is not None:
            continue
        names = [field.name for field in logic.fields]

        def shown(values: Sequence[Any], names: Sequence[str] = names) -> str:
            # Since when a key waits is only told apart where keys of several channels are called in one order.
            return repr([value for name, value in zip(names, values, strict=True) if name != "opened"])

        initial = shown(run.initial_state(node.name))
        expected = {repr(key): shown(state) for key, state in run.state(node.name).items()}
        held = {
            key: shown([state[name] for name in names])
            for key, state in _held(segments.get(node.name, ()), files).items()
        }
        for key in sorted({*expected, *held}):
            wanted, found = expected.get(key, initial), held.get(key, initial)
            if wanted != found:
                complaints.append(f"state: {node.name}, key {key}: {wanted} should be held, and {found} is")
                break
    return complaints


def _held(records: Sequence[Mapping[str, Any]], files: WatchedFiles) -> dict[str, dict[str, Any]]:
    """The state that segments hold, by the text of the key."""
    found: dict[str, dict[str, tuple[Any, bool]] | None] = {}
    for record in sorted(records, key=lambda record: int(record["last"])):
        data = files.read(f"state/{record['name']}")
        if data is None:
            continue  # another check complains
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        columns = {name: _values(table, name) for name in table.column_names}
        coded = {name for name in columns if _is_coded(table, name)}
        keys = [decode(key) for key in columns["key"]] if "key" in coded else columns["key"]
        dead = columns.get("dead", [False] * len(table))
        fields = [name for name in columns if name.startswith("field.")]
        for at, key in enumerate(map(repr, keys)):
            before = found.get(key) or {}
            cells = {name: (columns[name][at], name in coded) for name in fields}
            for name, (cell, is_coded) in cells.items():
                if is_coded and is_delta(cell):
                    cells[name] = applied(cell, before[name][0]), True
            found[key] = None if dead[at] else cells
    return {
        key: {name[6:]: decode(cell) if is_coded else cell for name, (cell, is_coded) in cells.items()}
        for key, cells in found.items()
        if cells is not None
    }


def _values(table: pa.Table, name: str) -> list[Any]:
    """The values of a column; of one that the codec made, its cells."""
    encoding = (table.schema.field(name).metadata or {}).get(b"encoding", b"plain")
    return decoded(table[name].combine_chunks(), b"plain" if encoding == b"codec" else encoding)


def _is_coded(table: pa.Table, name: str) -> bool:
    return (table.schema.field(name).metadata or {}).get(b"encoding") == b"codec"


def check_owners(ledger: Ledger, files: WatchedFiles, routed_by: RoutedBy) -> list[str]:
    """Every key was written by the one channel that owned it."""
    written: dict[tuple[str, int], dict[Any, str]] = {}
    seen: set[str] = set()
    for manifest in ledger.manifests:
        functions = {int(at): base64.b64decode(data) for at, data in manifest["facts"]["functions"].items()}
        for operator, records in manifest["segments"].items():
            new = [each for each in records if each["name"] not in seen]
            there = [each for each in new if files.read(f"state/{each['name']}") is not None]
            seen.update(each["name"] for each in new)

            def rows(record: Mapping[str, Any], operator: str = operator) -> list[tuple[int, Any]]:
                found = rows_of(files.read(f"state/{record['name']}") or b"", record.get("slices", ()))
                return [(routed_by(operator, hashed, key), key) for hashed, key in found]

            try:
                check_records(there, functions, rows, written)
            except AssertionError as problem:
                return [f"owners: {problem}"]
            except KeyError as generation:
                return [f"owners: no function of generation {generation} in the manifest of epoch {manifest['epoch']}"]
    return []


def check_bounds(ledger: Ledger, channels_min: int, channels_max: int | None) -> list[str]:
    """Controllers stay within what the user allowed; so does what is asked for by hand."""
    return [
        f"bounds: {each.region} has {each.channels} channels from epoch {each.epoch} on, "
        f"not {channels_min} to {channels_max}"
        for each in ledger.scaled
        if each.channels < channels_min or (channels_max is not None and each.channels > channels_max)
    ]


def check_asked(ledger: Ledger, asked: Sequence[Asked]) -> list[str]:
    """What was asked for by hand is done, whatever happens to the driver in between."""
    complaints = []
    for each in asked:
        after = [manifest for manifest in ledger.manifests if manifest["facts"]["batch"] > each.batch]
        # It may be asked for something else before an epoch has ended, or before the one that has it.
        same = [other for other in asked if other.region == each.region]
        wanted = {other.channels for other in same if each.batch <= other.batch <= each.batch + 1}
        regions = [manifest["facts"]["regions"].get(each.region) for manifest in after]
        found = [region["channels"] for region in regions if region is not None]
        if found and found[0] not in wanted:
            complaints.append(
                f"asked: {each.region} was to have {each.channels} channels from after micro-batch {each.batch} on, "
                f"and has {found[0]}"
            )
    return complaints


def check_leaks(ledger: Ledger, files: WatchedFiles, kept: int) -> list[str]:
    """After a clean start nothing is in the store that no manifest names."""
    if not ledger.manifests:
        return []
    newest = ledger.manifests[-1]["epoch"]
    # A restarted driver commits an epoch anew if it did not find its manifest; the last one counts.
    manifests = {each["epoch"]: each for each in ledger.manifests if each["epoch"] > newest - kept}
    named = {
        f"state/{each['name']}"
        for manifest in manifests.values()
        for records in manifest["segments"].values()
        for record in records
        for each in (record, *record.get("parts", ()))
    }
    complaints = []
    for name in files.below("state"):
        epoch = int(name.rpartition("/")[2].split("-")[0])
        if name not in named and epoch <= newest:
            complaints.append(f"leaks: {name} is named by none of the last {kept} manifests")
    for directory in ("epochs", "feedback"):
        for name in files.below(directory):
            epoch = int(name.rpartition("/")[2][:12])
            if epoch <= newest - kept:
                complaints.append(f"leaks: {name} is older than what is kept")
    return complaints[:3]
