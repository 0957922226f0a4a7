"""The command line: look into checkpoints.

anabranch state CHECKPOINT                       the stores of a checkpoint: keys, groups, sizes
anabranch state CHECKPOINT OPERATOR              its keys and their state
anabranch state CHECKPOINT OPERATOR --key KEY    the state of one key (a JSON value; a list if composite)
anabranch state CHECKPOINT OPERATOR --groups     how many keys each key group has
anabranch state CHECKPOINT --versions            the epochs that can be read; --epoch N reads one
anabranch difference FILE                        what verify found to differ; --all shows all its tuples
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.errors import AnabranchError
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = argparse.ArgumentParser(prog="anabranch", description="Look into checkpoints of Anabranch queries.")
    commands = parser.add_subparsers(dest="command", required=True)
    state = commands.add_parser("state", help="list stores, keys and values of a checkpoint")
    state.add_argument("checkpoint", help="the query's checkpointLocation, on a path this machine can open")
    state.add_argument("operator", nargs="?", help="show this operator's state")
    state.add_argument("--key", help="show one key: a JSON value such as 7 or '\"a\"'; a list if the key has parts")
    state.add_argument("--groups", action="store_true", help="show how many keys each key group has")
    state.add_argument("--versions", action="store_true", help="show which epochs can be read")
    state.add_argument("--epoch", type=int, help="the version to read; the newest by default")
    state.add_argument("--limit", type=int, default=20, help="how many keys to show")
    difference = commands.add_parser("difference", help="show what the option verify found to differ")
    difference.add_argument("file", help="the file that the error named")
    difference.add_argument("--all", action="store_true", help="show all tuples of the key")
    options = parser.parse_args(arguments)
    try:
        if options.command == "difference":
            _show_difference(options)
        else:
            _show_state(options)
    except AnabranchError as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    return 0


def _show_difference(options: argparse.Namespace) -> None:
    try:
        data = Path(options.file.removeprefix("file:")).read_bytes()
    except OSError as problem:
        raise AnabranchError(f"{options.file}: {problem.strerror}") from None
    record = DifferenceRecord.from_json(data)
    print(record.text(len(record.tuples) if options.all else 20))


def _show_state(options: argparse.Namespace) -> None:
    location = Path(options.checkpoint.removeprefix("file:"))
    if (location / "anabranch").is_dir():
        location = location / "anabranch"
    reader = CheckpointReader(LocalFiles(str(location)), options.epoch)
    if options.versions:
        print(*reader.versions(), sep="\n")
    elif options.operator is None:
        rows = [dataclasses.asdict(summary) for summary in reader.stores()]
        _print_table(rows, ["operator", "key", "fields", "epoch", "keys", "key_groups", "segments", "bytes"])
    elif options.key is not None:
        _show_key(reader, options)
    elif options.groups:
        _print_table(
            [{"key_group": g, "keys": n} for g, n in reader.groups(options.operator).items()], ["key_group", "keys"]
        )
    else:
        table = reader.table(options.operator)
        _print_table(table.slice(0, options.limit).to_pylist(), table.column_names)
        if table.num_rows > options.limit:
            print(f"{table.num_rows - options.limit} more; --limit {table.num_rows} shows all")


def _show_key(reader: CheckpointReader, options: argparse.Namespace) -> None:
    try:
        key = json.loads(options.key)
    except ValueError:
        key = options.key  # a bare word is meant as a string
    found = reader.value(options.operator, tuple(key) if isinstance(key, list) else key)
    if found is None:
        raise AnabranchError(f"the key {key!r} has no state in {options.operator}")
    for name, value in found.items():
        print(f"{name} = {value!r}")


def _print_table(rows: list[dict[str, Any]], names: list[str]) -> None:
    cells = [[_text(row[name]) for name in names] for row in rows]
    widths = [max([len(name), *(len(line[at]) for line in cells)]) for at, name in enumerate(names)]
    for line in [names, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
