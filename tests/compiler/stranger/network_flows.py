"""Packets: addresses, flows, scans, handshakes, sketches of cardinality."""

import base64
import hashlib
import ipaddress
from collections import defaultdict
from collections.abc import Callable
from enum import Enum
from functools import lru_cache

import anabranch as ab
from tests.compiler.stranger.stranger_data import PACKETS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

NETWORKS = [
    (ipaddress.ip_network("192.168.0.0/24"), "office"),
    (ipaddress.ip_network("192.168.1.0/24"), "lab"),
    (ipaddress.ip_network("fe80::/10"), "link-local"),
]
SERVICES = dict(zip((22, 53, 80, 443, 3389), ("ssh", "dns", "http", "https", "rdp"), strict=True))


@lru_cache(maxsize=1024)
def zone_of(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "invalid"
    for network, zone in NETWORKS:
        if address in network:
            return zone
    return "private" if address.is_private else "public"


def zones(t):
    return {"from_zone": zone_of(t.src), "to_zone": zone_of(t.dst), "service": SERVICES.get(t.port, f"port {t.port}")}


def community_id(t):
    """The same for both directions of a flow."""
    ends = sorted([t.src, t.dst])
    digest = hashlib.sha1("|".join([*ends, str(t.port)]).encode()).digest()
    return t.src, t.dst, "1:" + base64.b64encode(digest).decode("ascii")


def flag_names(t):
    names = {"S": "syn", "A": "ack", "F": "fin", "R": "reset"}
    return [(t.src, [names[flag] for flag in t.flags], "S" in t.flags and "A" not in t.flags)]


Rule = Callable[[object], bool]


def all_of(*rules: Rule) -> Rule:
    return lambda t: all(rule(t) for rule in rules)


def any_of(*rules: Rule) -> Rule:
    return lambda t: any(rule(t) for rule in rules)


def port_in(*ports: int) -> Rule:
    allowed = set(ports)
    return lambda t: t.port in allowed


firewall = all_of(port_in(22, 3389, 443), any_of(lambda t: t.size > 500, lambda t: t.flags == "S"))


# ---------------------------------------------------------------- keyed


class PortScan:
    """A source that tries many ports of one target in a short time."""

    def __init__(self, ports=4, seconds=120):
        self.ports = ports
        self.seconds = seconds
        self.tried = defaultdict(dict)

    def __call__(self, t):
        tried = self.tried[t.src, t.dst]
        tried[t.port] = t.ts
        for port in [p for p, ts in tried.items() if t.ts - ts > self.seconds]:
            del tried[port]
        if len(tried) >= self.ports:
            yield t.src, t.dst, sorted(tried)
            tried.clear()


class Flow:
    __slots__ = ("bytes", "first", "last", "packets")

    def __init__(self, ts):
        self.first = self.last = ts
        self.packets = 0
        self.bytes = 0

    def __iadd__(self, packet):
        self.packets += 1
        self.bytes += packet.size
        self.last = packet.ts
        return self

    def expired(self, now, idle):
        return now - self.last > idle


class FlowTable:
    """Flows by their three names; exported when they were idle or are reset."""

    def __init__(self, idle=60):
        self.idle = idle
        self.flows = {}

    def __call__(self, t):
        key = (t.src, t.dst, t.port)
        flow = self.flows.get(key)
        if flow is not None and (flow.expired(t.ts, self.idle) or "R" in t.flags):
            yield *key, flow.packets, flow.bytes, flow.last - flow.first
            flow = None
            del self.flows[key]
        if flow is None:
            flow = Flow(t.ts)
        flow += t
        self.flows[key] = flow


class Handshake(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"


TRANSITIONS = {
    (Handshake.CLOSED, "S"): Handshake.OPENING,
    (Handshake.OPENING, "A"): Handshake.OPEN,
    (Handshake.OPENING, "SA"): Handshake.OPEN,
    (Handshake.OPEN, "FA"): Handshake.CLOSED,
    (Handshake.OPEN, "R"): Handshake.CLOSED,
}


class Connections:
    def __init__(self):
        self.states = {}

    def __call__(self, t):
        state = self.states.get(t.src, Handshake.CLOSED)
        new = TRANSITIONS.get((state, t.flags))
        if new is None:
            return
        if new is Handshake.CLOSED:
            self.states.pop(t.src, None)
        else:
            self.states[t.src] = new
        yield t.src, state.value, new.value


class DistinctTargets(ab.Operator):
    """How many targets a source talks to, by linear counting in 64 bits."""

    bitmap: int = ab.state(default=0)

    def process(self, t):
        h = int.from_bytes(hashlib.blake2b(f"{t.dst}:{t.port}".encode(), digest_size=4).digest(), "big")
        before = self.bitmap
        self.bitmap |= 1 << (h % 64)
        if self.bitmap != before:
            yield t.src, self.bitmap.bit_count()


class Throughput:
    """Bytes in each ten seconds of a source; closed spans are emitted."""

    def __init__(self, span=10):
        self.span = span
        self.buckets = {}

    def __call__(self, t):
        slot = t.ts // self.span
        try:
            current, total = self.buckets[t.src]
        except KeyError:
            current, total = slot, 0
        if current != slot:
            yield {"src": t.src, "start": current * self.span, "rate": total / self.span}
            current, total = slot, 0
        self.buckets[t.src] = [current, total + t.size]


ENTRIES = [
    stateless("zones", PACKETS, lambda s: s.map(zones, schema="from_zone string, to_zone string, service string")),
    stateless("community_id", PACKETS, lambda s: s.map(community_id, schema="src string, dst string, id string")),
    stateless(
        "flag_names", PACKETS, lambda s: s.flat_map(flag_names, schema="src string, flags array<string>, opens boolean")
    ),
    stateless("firewall", PACKETS, lambda s: s.filter(firewall)),
    per_key(
        "port_scan",
        PACKETS,
        lambda s: s.process(PortScan(3, 300), schema="src string, dst string, ports array<long>"),
        "src",
        "dst",
    ),
    per_key(
        "flow_table",
        PACKETS,
        lambda s: s.process(
            FlowTable(), schema="src string, dst string, port long, packets long, bytes long, seconds long"
        ),
        "src",
        "dst",
        "port",
    ),
    per_key(
        "connections",
        PACKETS,
        lambda s: s.process(Connections(), schema="src string, before string, after string"),
        "src",
    ),
    per_key(
        "distinct_targets",
        PACKETS,
        lambda s: s.process(DistinctTargets(), by="src", schema="src string, bits long"),
        "src",
    ),
    per_key(
        "throughput",
        PACKETS,
        lambda s: s.process(Throughput(), schema="src string, start long, rate double"),
        "src",
    ),
]
