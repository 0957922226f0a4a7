"""Every option of a query: its name, what it may be, what it is if nobody says, what it means. One row each.

    writer.option("maxChannels", 8)  ─► check_names    is it ours, the format's, or a slip of the pen?
                                     └► read_options   text ─► value; ProgramError says what was expected

What the values do together (bounds that contradict each other, one option that needs another) is said where they are
used: `control/elastic_options`, `engine/driver/balancing`, `engine/query_options`. docs/options.md is written from this
table (`make docs`). A new option is a new row.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import ProgramError

CHANNELS_MAX = BUNDLES_MAX = 4096
IMBALANCE_TOLERANCE = 1.2

_UNITS_S: Mapping[str, float] = {
    unit: seconds
    for units, seconds in (
        ("ms msec msecs millisecond milliseconds", 0.001),
        ("s sec secs second seconds", 1.0),
        ("min mins minute minutes", 60.0),
        ("h hour hours", 3600.0),
        ("d day days", 86_400.0),
        ("w week weeks", 604_800.0),
    )
    for unit in units.split()
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def seconds_of(text: str) -> float | None:
    """The duration that a text says, in seconds; None if it says none, or nothing above zero.

    Examples
    --------
    >>> seconds_of("2"), seconds_of("1.5 seconds"), seconds_of("500 ms"), seconds_of("1 hour 30 minutes")
    (2.0, 1.5, 0.5, 5400.0)
    >>> seconds_of("soon") is None
    True
    """
    text = text.strip().lower().removeprefix("interval ")
    try:
        seconds = float(text)
    except ValueError:
        seconds, at = 0.0, 0
        while at < len(text):
            amount = _AMOUNT.match(text, at)
            if amount is None or amount[2] not in _UNITS_S:
                return None
            seconds, at = seconds + float(amount[1]) * _UNITS_S[amount[2]], amount.end()
    return seconds if 0 < seconds < float("inf") else None


@dataclasses.dataclass(frozen=True)
class Interval:
    """So many epochs, or so many seconds; the other is 0."""

    epochs: int = 0
    seconds: float = 0.0


# -- what an option may be: text → value; ValueError: it is not that ------------------------------------------


@dataclasses.dataclass(frozen=True)
class OptionKind:
    """What an option may be."""

    expected: str
    """Ends the sentence "expected …"."""
    parse: Callable[[str], Any]


def _whole(least: int, most: int | None = None) -> OptionKind:
    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < least or (most is not None and int(text) > most):
            raise ValueError
        return int(text)

    expected = f"a whole number, {least} or more" if most is None else f"a whole number from {least} to {most}"
    return OptionKind(expected, parse)


def _whole_or_auto(most: int) -> OptionKind:
    whole = _whole(0, most)
    return OptionKind(f"auto, or {whole.expected}", lambda text: None if text == "auto" else whole.parse(text))


def _number(least: float, most: float, expected: str, below: bool = False) -> OptionKind:
    def parse(text: str) -> float:
        value = float(text)
        if not (least <= value < most if below else least <= value <= most):  # also for NaN
            raise ValueError
        return value

    return OptionKind(expected, parse)


def _one_of(*choices: str) -> OptionKind:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return OptionKind(f"one of {', '.join(choices)}", parse)


def _duration(text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError
    return seconds


def _period(text: str) -> Interval:
    epochs = re.fullmatch(r"\s*(\d+)\s*epochs?\s*", text.lower())
    if epochs is None:
        return Interval(seconds=_duration(text))
    if int(epochs[1]) < 1:
        raise ValueError
    return Interval(epochs=int(epochs[1]))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    if found is None:
        raise ValueError
    return int(found[1]) << (10 * " kmgt".index(found[2] or " "))


def _some_bytes(text: str) -> int:
    found = _bytes(text)
    if not found:
        raise ValueError
    return found


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


OVER_COLUMNS: tuple[str, ...] = ("needed", "calls", "methods", "slots", "running", "windows", "sessions", "joins")
OVER_COLUMNS += ("top", "filters", "enrich")
"""What runs over whole columns where it can, each switched by its name."""


def _over_columns(text: str) -> frozenset[str]:
    if text in ("on", "off"):
        return frozenset(OVER_COLUMNS if text == "on" else ())
    chosen = frozenset(part.strip() for part in text.split(","))
    if not chosen <= set(OVER_COLUMNS):
        raise ValueError
    return chosen


RESOURCES = ("state", "computation", "communication")


def _tolerances(text: str) -> tuple[float, float, float]:
    """One number for all three resources, or numbers by name; those not named have the usual one."""
    if "=" not in text:
        values = dict.fromkeys(RESOURCES, float(text))
    else:
        values = dict.fromkeys(RESOURCES, IMBALANCE_TOLERANCE)
        for part in text.split(","):
            name, _, amount = part.partition("=")
            if name.strip() not in values:
                raise ValueError
            values[name.strip()] = float(amount)
    if not all(1 <= value < float("inf") for value in values.values()):  # also for NaN
        raise ValueError
    return values["state"], values["computation"], values["communication"]


TEXT = OptionKind("a text", str)
DURATION = OptionKind("a time, such as '2 seconds', '500 ms' or '1 hour'", _duration)
PERIOD = OptionKind("for example '20 epochs', '30 seconds' or '5 minutes'", _period)
TRUTH = OptionKind("true or false", _truth)
CHANNELS = _whole(1, CHANNELS_MAX)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a query."""

    name: str
    kind: OptionKind
    default: str
    """What it is if nobody says, for people."""
    doc: str
    """What it means, in a sentence or three."""

    def parse(self, text: str) -> Any:
        """The value; ProgramError if it cannot be one."""
        try:
            return self.kind.parse(text)
        except (ValueError, KeyError):
            raise ProgramError(f"option {self.name}={text!r}: expected {self.kind.expected}") from None


OPTIONS: tuple[Option, ...] = (
    Option(
        "checkpointLocation",
        TEXT,
        "none; needed where output is kept",
        "The directory of the query's checkpoint.",
    ),
    Option("path", TEXT, "none", "Where files go; also the argument of `start`."),
    # -- state
    Option(
        "snapshotInterval",
        PERIOD,
        "never",
        "How often each channel's state is compacted into one segment, beyond what is compacted anyway.",
    ),
    Option(
        "endOfInput",
        _one_of("open", "close"),
        "open",
        "With `trigger(availableNow=True)`: when all input was read, leave windows and timers open, for a later start; "
        "or have all time come, as for a batch: windows close, timers are called, and the query takes no more input.",
    ),
    Option("versionsKept", _whole(2), "10", "How many epochs back a checkpoint can be read."),
    Option(
        "durability",
        _one_of("process", "power"),
        "process",
        "What an epoch that is committed survives: the end of every process (files are with the operating system), or "
        "a power cut as well (segments, manifests, output and their directories are on the disk first).",
    ),
    Option("allowStateLoss", TRUTH, "false", "Go on with a program that has less state than the checkpoint."),
    Option(
        "migrationStore",
        TEXT,
        "none",
        "A PostgreSQL URL: where state waits for its new owner on a cluster whose hosts cannot open the "
        "checkpoint's files.",
    ),
    Option(
        "stateLocation",
        TEXT,
        "in `checkpointLocation`",
        "Where the state and the manifests are kept, if not beside Spark's own notes: a path, `s3://…` or `abfs://…`, "
        "which executors then write and read themselves, with what `fs.s3a.…`, `fs.azure.…` say of endpoint and keys.",
    ),
    Option(
        "segmentCache",
        TEXT,
        "below the host's directory for temporary files",
        "A directory in which each host keeps copies of segments that it has no path to. A relative one is below the "
        "working directory of each executor.",
    ),
    Option(
        "segmentCacheBytes",
        OptionKind("a number of bytes, such as 100000000, 500m or 4g", _bytes),
        "4g",
        "How many bytes of copies a host keeps at most, of all queries; those least recently used go first.",
    ),
    # -- order and output
    Option(
        "order",
        _one_of("total", "key", "none"),
        "total",
        "Of an output: that of one thread; only tuples of one key of the region they come from stand in their order; "
        "any. What operators need they have anyway. Files that are not in total order are written by the "
        "channels themselves.",
    ),
    Option(
        "latestBy",
        TEXT,
        "none",
        "Of an output that is a stream of updates: the columns of its key, with commas between. `memory` then shows "
        "the last tuple of each key, `foreachBatch` gets those of the epoch. Tuples whose `changeColumn` says `delete` "
        "take the row away; `foreachBatch` gets them.",
    ),
    Option("changeColumn", TEXT, "change", "With `latestBy`: the column that says what a tuple does, if there is one."),
    Option(
        "mergers",
        _whole_or_auto(CHANNELS_MAX),
        "auto",
        "How many tasks put outputs behind a shuffle in order and write them, as files on a path that all hosts share. "
        "`auto`: as many as run at once, for outputs of 32 MB and more in the epoch before; tasks that read 4 MB and "
        "more write what they make of it without a shuffle. 0: the driver writes whatever has an order.",
    ),
    # -- channels
    Option("channels", CHANNELS, "found out while the query runs", "Pins the number of channels of every region."),
    Option("minChannels", CHANNELS, "1", "The fewest channels a region may get."),
    Option("maxChannels", CHANNELS, "as many as tasks run at once", "The most channels a region may get."),
    Option("initialChannels", CHANNELS, "as many as tasks run at once", "Channels of a region that has no history."),
    Option(
        "policy",
        _one_of("default", "paper"),
        "default",
        "Which controller decides: ours, or that of the *Elastic* paper.",
    ),
    Option(
        "bursts",
        _one_of("peak", "mean"),
        "peak",
        "Of `policy=default`: where the load comes in bursts, rest at channels for the bursts, or for the mean of the "
        "load, so that bursts are worked off in the pauses.",
    ),
    Option(
        "changeSensitivity",
        _number(0, 1, "a number from 0 to 1, such as 0.5"),
        "the paper's",
        "Of `policy=paper`: by how much throughput must change to count as a change.",
    ),
    Option(
        "levels",
        _one_of("paper", "doubling", "single"),
        "paper",
        "Of `policy=paper`: which numbers of channels it walks on.",
    ),
    Option("adaptationPeriod", PERIOD, "5 seconds", "How often the number of channels is looked at."),
    Option(
        "epochTarget",
        DURATION,
        "the trigger's interval, or 1 second",
        "How long tuples may stand ready before that is called congestion.",
    ),
    Option(
        "congestionThreshold",
        _number(0, 1, "a number from 0 to below 1; 0.01 to 0.3 is good", below=True),
        "0.05",
        "How much congestion is tolerated.",
    ),
    Option(
        "epochSize",
        _one_of("auto", "fixed"),
        "auto",
        "`auto`: how many files of `from_files` an epoch takes is found out, so that one that cannot take all "
        "there is lasts about the epoch target, or the trigger's interval, or two seconds. `fixed`: what "
        "Spark gives.",
    ),
    # -- executors
    Option(
        "maxExecutors",
        CHANNELS,
        "their number is left alone",
        "Lets the executors follow the channels, on a cluster without dynamic allocation: as many are asked "
        "for as the channels have use for, up to this.",
    ),
    Option("minExecutors", CHANNELS, "1", "Superfluous executors are given back down to this; with `maxExecutors`."),
    Option(
        "executorIdleTimeout",
        DURATION,
        "60 seconds",
        "How long executors must be superfluous to be given back; with `maxExecutors`.",
    ),
    Option(
        "placement",
        _one_of("auto", "off"),
        "auto",
        "On a cluster: `auto` asks Spark to run each channel on the executor that ran it before, where its state is; "
        "`off` lets Spark choose.",
    ),
    Option(
        "standbys",
        _whole(0, 16),
        "0",
        "How many other executors keep copies of each channel's state, where it is in an object store: a channel whose "
        "executor is lost goes on there, and one that should move goes when its copy is there. Each copy is fetched "
        "once and takes its place in a cache.",
    ),
    Option(
        "standbyBandwidth",
        OptionKind("a number of bytes per second, such as 50m; not 0", _some_bytes),
        "50m",
        "How many bytes a second each executor fetches for such copies at most.",
    ),
    Option(
        "standbyLag",
        OptionKind("a number of bytes, such as 1m", _bytes),
        "0",
        "How much a copy may lack, beside what the last epoch wrote, when a channel goes where it is.",
    ),
    # -- balancing
    Option(
        "balancing",
        _one_of("auto", "off"),
        "auto",
        "`auto`: frequent keys are found and placed so that channels are equally loaded. `off`: consistent "
        "hashing only.",
    ),
    Option(
        "imbalanceTolerance",
        OptionKind("a number of at least 1, such as 1.2, or by resource: 'state=2, computation=1.2'", _tolerances),
        str(IMBALANCE_TOLERANCE),
        "How many times the load of the least loaded channel the most loaded one may have: of all resources, or of "
        "each of `state`, `computation`, `communication`.",
    ),
    Option(
        "partitioning",
        _one_of("consistent", "scan", "redist", "readj", "weigh"),
        "weigh",
        "How partitioning functions are built: `weigh` is ours, `scan`, `redist` and `readj` are those of the "
        "*Partitioning* paper, `consistent` knows of no frequent keys.",
    ),
    Option(
        "bundles",
        _whole_or_auto(BUNDLES_MAX),
        "auto",
        "Into how many bundles the key groups of each region are tied, each with its owner in a table: what is copied, "
        "fetched and moved as one. 0: a ring deals single key groups, and a channel's are one bundle. `auto`: what a "
        "region has; a new one 0 where all hosts open the files of the state, elsewhere 48, or 8 for each channel that "
        "there may be, so that not all is fetched for one key. Another number than before moves most keys once.",
    ),
    Option(
        "partitioningSigma",
        _number(1e-3, 1, "a number from 0.001 to 1, such as 0.1"),
        "0.1",
        "σ of the *Partitioning* paper: the part of the tolerance that is left to keys which are not mapped by "
        "themselves. Smaller: more keys are mapped, channels are more even, functions larger.",
    ),
    Option(
        "partitioningUtility",
        _one_of("A", "APM", "APLM", "ATM", "ATLM"),
        "APM",
        "Of `partitioning` = `scan`, `redist`, `readj`: how balance (A) is weighed against migration: plus (P) or "
        "times (T) it (M) or its logarithm (LM).",
    ),
    Option(
        "splitHotKeys",
        _one_of("auto", "on", "off"),
        "auto",
        "Lets several channels work on a key that is too hot for one, in aggregations whose partial results "
        "combine exactly, for a shuffle more: `auto` goes over to it when a key turns out to need it, `on` "
        "begins with it, `off` never does it.",
    ),
    Option(
        "spread",
        _one_of("auto", "off"),
        "auto",
        "Where operators without state run: `auto` gives them channels of their own when they are heavy and their "
        "source has too few pieces, or uneven ones, and takes them away when that does not pay; `off` leaves them "
        "where the source is read, but for `Stream.spread`.",
    ),
    Option(
        "fileReading",
        _one_of("auto", "spark"),
        "auto",
        "Who reads the files of an epoch: `auto` lets tasks read Parquet files on this machine themselves, where they "
        "read the same as Spark does, which saves the way of every row from Java to Python; `spark` never does.",
    ),
    # -- trust
    Option(
        "verify",
        _number(0, 1, "a number from 0 to 1, such as 0.01"),
        "0: nothing is",
        "The chance that each key (of an operator without state: each tuple) has in each epoch to be run again as one "
        "thread would, from the same state, beside the query: its output and state are compared with what the tasks "
        "made. [verify.md](verify.md) says what is found, what is not, and what it costs.",
    ),
    Option(
        "verifyAction",
        _one_of("fail", "report"),
        "fail",
        "What follows if something differs: the query fails and nothing of the epoch is written; or it goes on, and "
        "the log, `lastProgress` and a file in the checkpoint say what was found.",
    ),
    Option(
        "watch",
        _one_of("sample", "all", "off"),
        "sample",
        "For which tuples an operator whose own dicts were found to be its state is given dicts that refuse whatever "
        "is not the entry of the tuple's key: for the first of each task, for all (which costs), for none.",
    ),
    Option(
        "columns",
        OptionKind(f"on, off, or some of {', '.join(OVER_COLUMNS)}, with commas between", _over_columns),
        "on",
        "What runs over columns, with the same output: `needed` reads, takes of Spark, and sends only columns that are "
        "used; `calls` calls functions that only compute once for equal values; `methods` gives your methods, and "
        "functions of flat_map, the columns they read; `slots` keeps plain state in lists, not objects; `running`, "
        "`windows`, `sessions`, `joins` and `top` (and deduplicate) compute all keys of a batch at once; `filters` "
        "asks conditions that only compare of whole columns, read before others; `enrich` looks up whole batches.",
    ),
)

_BY_NAME: Mapping[str, Option] = {option.name.lower(): option for option in OPTIONS}


def is_ours(name: str) -> bool:
    """Whether an option is the query's; others are the format's."""
    return name.lower() in _BY_NAME


def read_options(given: Mapping[str, str]) -> dict[str, Any]:
    """The values of our options among those that were given, by name; names are compared without case."""
    return {
        _BY_NAME[name.lower()].name: _BY_NAME[name.lower()].parse(text) for name, text in given.items() if is_ours(name)
    }
