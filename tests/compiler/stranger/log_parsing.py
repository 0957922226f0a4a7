"""Logs and feeds: regular expressions, json, csv, dates; errors per service."""

import binascii
import csv
import datetime as dt
import functools
import io
import json
import logging
import re
import string
import textwrap
from collections import Counter, defaultdict
from typing import Any, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import anabranch as ab
from tests.compiler.stranger.stranger_data import DOCUMENTS, LOGS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

COMBINED = re.compile(
    r"""(?P<host>\S+)\ \S+\ (?P<user>\S+)\ \[(?P<time>[^\]]+)\]\ "(?P<method>[A-Z]+)\ (?P<path>\S+)\ [^"]*"\ """
    r"(?P<status>\d{3})\ (?P<size>\d+|-)",
    re.VERBOSE,
)


class Access(NamedTuple):
    host: str
    time: dt.datetime
    method: str
    path: str
    status: int
    size: int


def parse_access(t):
    if not (found := COMBINED.match(t.line)):
        return
    groups = found.groupdict()
    time = dt.datetime.strptime(groups["time"], "%d/%b/%Y:%H:%M:%S %z")
    size = 0 if groups["size"] == "-" else int(groups["size"])
    yield Access(groups["host"], time, groups["method"], groups["path"], int(groups["status"]), size)


LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")}


def at_least(level):
    """A filter for log levels."""
    threshold = LEVELS[level]

    def accept(t):
        return LEVELS.get(t.level, 0) >= threshold

    return accept


TEMPLATE_RULES = [
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "<ip>"),
    (re.compile(r"\[[^\]]*\]"), "<time>"),
    (re.compile(r"\b\d+\b"), "<n>"),
]


def log_template(t):
    line = functools.reduce(lambda text, rule: rule[0].sub(rule[1], text), TEMPLATE_RULES, t.line)
    return (t.service, line, format(binascii.crc32(line.encode()), "08x"))


class Endpoint(TypedDict):
    service: str
    resource: str
    version: int


@functools.lru_cache(maxsize=256)
def split_path(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("?")[0].split("/") if part)


def api_endpoint(t):
    try:
        path = t.line.split('"')[1].split()[1]
    except IndexError:
        return None
    match split_path(path):
        case ("api", version, resource, *_) if version[1:].isdigit():
            return [Endpoint(service=t.service, resource=resource, version=int(version[1:]))]
        case _:
            return None


def decode_document(t):
    """Feed documents; what cannot be read goes on as an error."""
    try:
        body = json.loads(t.body)
    except json.JSONDecodeError as problem:
        return {"feed": t.feed, "id": None, "name": None, "score": None, "error": problem.msg}
    score = body.get("score")
    return {
        "feed": t.feed,
        "id": body["id"],
        "name": body.get("user", {}).get("name", "").title(),
        "score": float(score) if isinstance(score, (int, float)) else None,
        "error": None,
    }


def explode_tags(t):
    try:
        tags = json.loads(t.body)["user"]["tags"]
    except (ValueError, KeyError, TypeError):
        tags = []
    yield from ((t.feed, tag, position) for position, tag in enumerate(tags, start=1))


BERLIN = ZoneInfo("Europe/Berlin")


def local_time(t):
    try:
        at = dt.datetime.fromisoformat(json.loads(t.body)["at"])
    except ValueError:
        return []
    local = at.astimezone(BERLIN)
    return [(t.feed, local.strftime("%Y-%m-%d %H:%M %Z"), local.isocalendar().week, local.weekday() >= 5)]


def parse_fields(t):
    (row,) = csv.reader(io.StringIO(t.fields), delimiter=";")
    number, region, amount, *rest = row
    return int(number), region.upper(), float(amount.replace(",", ".")), len(rest)


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """A nested document as dotted names."""
    if isinstance(value, dict):
        result = {}
        for name, inner in value.items():
            result.update(flatten(inner, f"{prefix}{name}."))
        return result
    if isinstance(value, list):
        return {k: v for at, inner in enumerate(value) for k, v in flatten(inner, f"{prefix}{at}.").items()}
    return {prefix.rstrip("."): str(value)}


def flat_document(t):
    if t.body.startswith("{broken"):
        return t.feed, {}
    return t.feed, flatten(json.loads(t.body))


UPGRADES = {
    "v1": lambda body: {**body, "schema": 1, "labels": body.get("user", {}).get("tags", [])},
    "v2": lambda body: body | {"schema": 2, "labels": sorted(body.get("user", {}).get("tags", []), reverse=True)},
}


def upgrade(t):
    try:
        document = json.loads(t.body)
    except json.JSONDecodeError:
        document = {}
    upgraded = UPGRADES[t.version](document)
    return t.feed, upgraded["schema"], upgraded["labels"], json.dumps(upgraded, sort_keys=True)


class SeverityTagger:
    """Rules that are given when it is made; nothing is remembered between lines."""

    def __init__(self, rules, default="normal"):
        self.rules = [(re.compile(pattern), tag) for pattern, tag in rules]
        self.default = default

    def __call__(self, t):
        return (t.seq, next((tag for pattern, tag in self.rules if pattern.search(t.line)), self.default))


MESSAGE = string.Template("[$level] $service: $text")


def pretty(t):
    text = textwrap.shorten(t.line, width=48, placeholder="…")
    return (MESSAGE.substitute(level=t.level.center(7), service=t.service, text=text),)


# ---------------------------------------------------------------- keyed


class ErrorBurst:
    """Three errors of a service with no more than forty lines from the first to the last."""

    def __init__(self):
        self.errors = defaultdict(list)

    def __call__(self, t):
        if t.level not in ("ERROR", "FATAL"):
            return
        errors = self.errors[t.service]
        errors.append(t.seq)
        errors[:] = [seq for seq in errors if t.seq - seq <= 40]
        if len(errors) >= 3:
            yield t.service, errors.copy()
            errors.clear()


class SequenceGaps(ab.Operator):
    last: int = ab.state(default=None)
    missed: int = ab.state(default=0)

    def process(self, t):
        if self.last is not None and t.seq > self.last + 1:
            self.missed += t.seq - self.last - 1
            yield t.feed, self.last + 1, t.seq - 1, self.missed
        self.last = t.seq


class StatusRatio:
    """The share of failed requests of each host."""

    STATUS = re.compile(r'" (\d)\d\d ')

    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        found = self.STATUS.search(t.line)
        if found is None:
            return
        counts = self.counts.setdefault(t.host, Counter())
        counts[found[1]] += 1
        bad = counts["5"] + counts["4"]
        if bad and counts.total() >= 3:
            yield {"host": t.host, "ratio": bad / counts.total()}


ENTRIES = [
    stateless("parse_access", LOGS, lambda s: s.flat_map(parse_access, schema=Access)),
    stateless("at_least_warn", LOGS, lambda s: s.filter(at_least("WARN"))),
    stateless(
        "log_template", LOGS, lambda s: s.map(log_template, schema="service string, template string, crc string")
    ),
    stateless("api_endpoint", LOGS, lambda s: s.flat_map(api_endpoint, schema=Endpoint)),
    stateless(
        "decode_document",
        DOCUMENTS,
        lambda s: s.map(decode_document, schema="feed string, id long, name string, score double, error string"),
    ),
    stateless(
        "explode_tags", DOCUMENTS, lambda s: s.flat_map(explode_tags, schema="feed string, tag string, place long")
    ),
    stateless(
        "local_time",
        DOCUMENTS,
        lambda s: s.flat_map(local_time, schema="feed string, local string, week long, weekend boolean"),
    ),
    stateless(
        "parse_fields",
        DOCUMENTS,
        lambda s: s.map(parse_fields, schema="number long, region string, amount double, more long"),
    ),
    stateless(
        "flat_document", DOCUMENTS, lambda s: s.map(flat_document, schema="feed string, fields map<string,string>")
    ),
    stateless(
        "upgrade_document",
        DOCUMENTS,
        lambda s: s.map(upgrade, schema="feed string, version long, labels array<string>, body string"),
    ),
    stateless(
        "severity_tagger",
        LOGS,
        lambda s: s.map(
            SeverityTagger([(r'" 5\d\d ', "broken"), (r'" 4\d\d ', "client"), (r"\.\./", "attack")]),
            schema="seq long, tag string",
        ),
    ),
    stateless("pretty_line", LOGS, lambda s: s.map(pretty, schema="text string")),
    stateless(
        "error_lines_upper",
        LOGS,
        lambda s: s.map(
            lambda t: (t.service, t.line.upper() if t.level == "ERROR" else t.line, len(t.line)),
            schema="service string, line string, length long",
        ),
    ),
    per_key(
        "error_burst", LOGS, lambda s: s.process(ErrorBurst(), schema="service string, lines array<long>"), "service"
    ),
    per_key(
        "sequence_gaps",
        DOCUMENTS,
        lambda s: s.process(SequenceGaps(), by="feed", schema="feed string, first long, last long, missed long"),
        "feed",
    ),
    per_key("status_ratio", LOGS, lambda s: s.process(StatusRatio(), schema="host string, ratio double"), "host"),
]
