"""Trucks: distances, geofences, stops, trips, routes, estimates."""

import math
import struct
from collections import defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import anabranch as ab
from tests.compiler.stranger.stranger_data import POSITIONS
from tests.compiler.stranger.stranger_entry import per_key, stateless

EARTH_KM = 6371.0


def haversine(lat1, lon1, lat2, lon2):
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    half = math.sin((phi2 - phi1) / 2) ** 2
    half += math.cos(phi1) * math.cos(phi2) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(half))


# ---------------------------------------------------------------- stateless

Depot = namedtuple("Depot", ["name", "lat", "lon", "radius"])
DEPOTS = (Depot("north", 52.5, 13.4, 15.0), Depot("south", 52.1, 13.1, 10.0), Depot("east", 52.3, 13.6, 12.0))
POLYGON = [(52.0, 13.0), (52.6, 13.0), (52.6, 13.5), (52.3, 13.7), (52.0, 13.5)]
LIMITS = MappingProxyType({"driving": 80.0, "loading": 5.0})
BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"


def nearest_depot(t):
    distances = {depot.name: haversine(t.lat, t.lon, depot.lat, depot.lon) for depot in DEPOTS}
    name, distance = min(distances.items(), key=lambda item: item[1])
    return t.truck, name, round(distance, 3)


def inside(polygon, t):
    """Ray casting."""
    crossings = False
    j = len(polygon) - 1
    for i in range(len(polygon)):
        (yi, xi), (yj, xj) = polygon[i], polygon[j]
        if (xi > t.lon) != (xj > t.lon) and t.lat < (yj - yi) * (t.lon - xi) / (xj - xi) + yi:
            crossings = not crossings
        j = i
    return crossings


def geohash(lat, lon, precision=6):
    lat_range, lon_range = [-90.0, 90.0], [-180.0, 180.0]
    code, bits, value, even = [], 0, 0, True
    while len(code) < precision:
        interval, x = (lon_range, lon) if even else (lat_range, lat)
        middle = sum(interval) / 2
        value <<= 1
        if x >= middle:
            value |= 1
            interval[0] = middle
        else:
            interval[1] = middle
        even = not even
        bits += 1
        if bits == 5:
            code.append(BASE32[value])
            bits = value = 0
    return "".join(code)


def with_geohash(t):
    return (t.truck, geohash(t.lat, t.lon), geohash(t.lat, t.lon, precision=4))


def speeding(t):
    return t.speed > LIMITS.get(t.status, 30.0)


def pack(t):
    """The position in the bytes that an old receiver wants."""
    payload = struct.pack(">iiHB", round(t.lat * 1e5), round(t.lon * 1e5), int(t.speed * 10), len(t.status))
    checksum = 0
    for byte in payload:
        checksum ^= byte
    return t.truck, payload + bytes([checksum]), payload.hex()


def tiles(t):
    for zoom in (6, 9, 12):
        n = 2**zoom
        x = int((t.lon + 180) / 360 * n)
        y = int((1 - math.asinh(math.tan(math.radians(t.lat))) / math.pi) / 2 * n)
        yield t.truck, zoom, x, y


# ---------------------------------------------------------------- keyed


class Odometer:
    def __init__(self):
        self.last = {}
        self.km = defaultdict(float)

    def __call__(self, t):
        if t.truck in self.last:
            self.km[t.truck] += haversine(*self.last[t.truck], t.lat, t.lon)
        self.last[t.truck] = (t.lat, t.lon)
        yield t.truck, t.ts, round(self.km[t.truck], 3)


class Fence(NamedTuple):
    truck: str
    depot: str
    event: str


class Geofence:
    """Enter and leave events for each depot."""

    def __init__(self, depots):
        self.depots = list(depots)
        self.inside = {}

    def __call__(self, t) -> Iterator[Fence]:
        now = {d.name for d in self.depots if haversine(t.lat, t.lon, d.lat, d.lon) <= d.radius}
        before = self.inside.get(t.truck, set())
        for name in sorted(now - before):
            yield Fence(t.truck, name, "enter")
        for name in sorted(before - now):
            yield Fence(t.truck, name, "leave")
        self.inside[t.truck] = now


class Stops:
    """Stops that lasted at least two minutes."""

    def __init__(self, minimum=120):
        self.minimum = minimum
        self.stopped = {}

    def __call__(self, t):
        if t.speed == 0:
            self.stopped.setdefault(t.truck, t.ts)
            return
        since = self.stopped.pop(t.truck, None)
        if since is None:
            return
        if t.ts - since >= self.minimum:
            yield {"truck": t.truck, "since": since, "seconds": t.ts - since}


@dataclass
class Trip:
    start: int
    points: int = 0
    top: float = 0.0


class Trips:
    """From loading to unloading."""

    def __init__(self):
        self._open: dict[str, Trip] = {}

    def _begin(self, truck, ts):
        if truck not in self._open:
            self._open[truck] = Trip(ts)

    def _end(self, truck):
        return self._open.pop(truck, None)

    def _along(self, truck, speed):
        trip = self._open.get(truck)
        if trip:
            trip.points += 1
            trip.top = max(trip.top, speed)

    def __call__(self, t):
        if t.status == "loading":
            self._begin(t.truck, t.ts)
        elif t.status == "unloading":
            if trip := self._end(t.truck):
                yield t.truck, t.ts - trip.start, trip.points, trip.top
        else:
            self._along(t.truck, t.speed)


class HarshBraking(ab.Operator):
    limit: float = 30.0
    speeds: list = ab.state(factory=list)

    def process(self, t):
        self.speeds.append(t.speed)
        if len(self.speeds) >= 2:
            before, now = self.speeds[-2:]
            if before - now > self.limit:
                yield t.truck, before, now
        if len(self.speeds) > 5:
            self.speeds = self.speeds[-5:]


class StatusTimes:
    """Seconds that a truck spent in each status."""

    def __init__(self):
        self.trucks = {}

    def __call__(self, t):
        truck = self.trucks.get(t.truck)
        if truck is None:
            self.trucks[t.truck] = SimpleNamespace(status=t.status, since=t.ts, totals={})
            return
        truck.totals[truck.status] = truck.totals.get(truck.status, 0) + t.ts - truck.since
        changed = truck.status != t.status
        truck.status, truck.since = t.status, t.ts
        if changed:
            yield t.truck, dict(truck.totals)


class Bearing:
    COMPASS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")

    def __init__(self):
        self.positions = defaultdict(partial(deque, maxlen=2))

    def __call__(self, t):
        positions = self.positions[t.truck]
        positions.append(t)
        if len(positions) < 2:
            return
        first, second = positions
        if (first.lat, first.lon) == (second.lat, second.lon):
            return
        angle = math.degrees(math.atan2(second.lon - first.lon, second.lat - first.lat)) % 360
        yield t.truck, round(angle, 2), self.COMPASS[round(angle / 45) % 8]


class Arrival:
    """Minutes to the depot at the speed of late, smoothed."""

    def __init__(self, depot, weight=0.3):
        self.depot = depot
        self.weight = weight
        self.speeds = {}

    def smoothed(self, truck, speed):
        old = self.speeds.get(truck, speed)
        self.speeds[truck] = new = old + self.weight * (speed - old)
        return new

    def __call__(self, t):
        speed = self.smoothed(t.truck, t.speed)
        if speed < 1:
            return None
        km = haversine(t.lat, t.lon, self.depot.lat, self.depot.lon)
        return t.truck, round(km / speed * 60, 2)


ENTRIES = [
    stateless(
        "nearest_depot", POSITIONS, lambda s: s.map(nearest_depot, schema="truck string, depot string, km double")
    ),
    stateless("inside_polygon", POSITIONS, lambda s: s.filter(partial(inside, POLYGON))),
    stateless(
        "with_geohash", POSITIONS, lambda s: s.map(with_geohash, schema="truck string, fine string, coarse string")
    ),
    stateless("speeding", POSITIONS, lambda s: s.filter(speeding)),
    stateless("pack_position", POSITIONS, lambda s: s.map(pack, schema="truck string, payload binary, hex string")),
    stateless("map_tiles", POSITIONS, lambda s: s.flat_map(tiles, schema="truck string, zoom long, x long, y long")),
    per_key("odometer", POSITIONS, lambda s: s.process(Odometer(), schema="truck string, ts long, km double"), "truck"),
    per_key("geofence", POSITIONS, lambda s: s.process(Geofence(DEPOTS)), "truck"),
    per_key("stops", POSITIONS, lambda s: s.process(Stops(), schema="truck string, since long, seconds long"), "truck"),
    per_key(
        "trips",
        POSITIONS,
        lambda s: s.process(Trips(), schema="truck string, seconds long, points long, top double"),
        "truck",
    ),
    per_key(
        "harsh_braking",
        POSITIONS,
        lambda s: s.process(HarshBraking(), by="truck", schema="truck string, before double, now double"),
        "truck",
    ),
    per_key(
        "status_times",
        POSITIONS,
        lambda s: s.process(StatusTimes(), schema="truck string, seconds map<string,long>"),
        "truck",
    ),
    per_key(
        "bearing",
        POSITIONS,
        lambda s: s.process(Bearing(), schema="truck string, angle double, compass string"),
        "truck",
    ),
    per_key(
        "arrival", POSITIONS, lambda s: s.process(Arrival(DEPOTS[0]), schema="truck string, minutes double"), "truck"
    ),
]
