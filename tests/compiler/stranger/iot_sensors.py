"""Devices and measurements: smoothing, outliers, drift, heartbeats, calibration."""

import bisect
import contextlib
import math
import statistics
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

import anabranch as ab
from tests.compiler.stranger.stranger_data import READINGS
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

CALIBRATION = {"temp": (0.98, 0.4), "hum": (1.05, -1.0)}
BANDS = [10.0, 18.0, 24.0, 30.0]
BAND_NAMES = ["freezing", "cold", "mild", "warm", "hot"]
COEFFICIENTS = np.array([0.3, -0.02, 0.001])


def calibrate(t):
    if t.value is None:
        return t
    gain, offset = CALIBRATION.get(t.metric, (1.0, 0.0))
    return t.but(value=round(t.value * gain + offset, 3))


def to_band(t):
    if t.value is None:
        return []
    return [(t.device, t.metric, BAND_NAMES[bisect.bisect_right(BANDS, t.value)])]


def valid(low, high, t):
    return t.value is not None and low <= t.value <= high


def battery_model(t):
    features = np.array([1.0, t.volts, t.volts**2])
    logit = float(features @ COEFFICIENTS)
    probability = 1.0 / (1.0 + np.exp(-logit))
    return {"device": t.device, "failing": float(np.round(probability, 6)), "low": bool(t.volts < 3.1)}


# ---------------------------------------------------------------- keyed


class MovingAverage:
    def __init__(self, n):
        self.n = n
        self.windows = {}

    def __call__(self, t):
        if t.value is None:
            return
        window = self.windows.setdefault((t.device, t.metric), deque(maxlen=self.n))
        window.append(t.value)
        yield t.device, t.metric, sum(window) / len(window)


class Detector(ABC):
    """Base of detectors that keep something for each device."""

    def __init__(self):
        self.memory = {}

    def __call__(self, t):
        if t.value is None:
            return
        remembered = self.memory.get(t.device)
        verdict, self.memory[t.device] = self.judge(remembered, t)
        if verdict:
            yield t.device, t.value, verdict

    @abstractmethod
    def judge(self, remembered, t): ...


class SpikeDetector(Detector):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def judge(self, remembered, t):
        if remembered is None:
            return None, t.value
        verdict = "spike" if t.value > self.factor * remembered else None
        return verdict, 0.9 * remembered + 0.1 * t.value


class StuckDetector(Detector):
    def judge(self, remembered, t):
        low, high, count = remembered or (t.value, t.value, 0)
        low, high, count = min(low, t.value), max(high, t.value), count + 1
        if count == 4:
            return ("stuck" if high - low < 12 else "alive"), None
        return None, (low, high, count)


class Heartbeat:
    """Gaps in what a device sends."""

    def __init__(self, expected=300):
        self.expected = expected
        self.last_seen = {}

    def __call__(self, t):
        if t.device in self.last_seen:
            gap = t.ts - self.last_seen[t.device]
            if gap > self.expected:
                yield {"device": t.device, "silent_from": self.last_seen[t.device], "seconds": gap}
        self.last_seen[t.device] = t.ts


class MedianFilter:
    def __init__(self, size=5):
        self.size = size
        self.buffers = defaultdict(list)

    def __call__(self, t):
        if t.value is None:
            return None
        buffer = self.buffers[t.device, t.metric]
        buffer.append(t.value)
        if len(buffer) > self.size:
            del buffer[0]
        return t.but(value=statistics.median(buffer))


class Hysteresis:
    """On above 28, off below 18; emits only when it switches."""

    def __init__(self, on=28.0, off=18.0):
        assert on > off
        self.on, self.off = on, off
        self.active = {}

    def __call__(self, t):
        if t.metric != "temp" or t.value is None:
            return
        was = self.active.get(t.device, False)
        now = t.value > self.on if not was else t.value >= self.off
        if now != was:
            self.active[t.device] = now
            yield t.device, "ON" if now else "OFF", t.ts


@dataclass(frozen=True)
class Kalman:
    estimate: float = 20.0
    error: float = 10.0

    def step(self, measured: float, noise: float = 4.0, drift: float = 0.05) -> "Kalman":
        gain = (self.error + drift) / (self.error + drift + noise)
        return replace(
            self,
            estimate=self.estimate + gain * (measured - self.estimate),
            error=(1 - gain) * (self.error + drift),
        )


class KalmanSmoother:
    def __init__(self):
        self.filters = {}

    def __call__(self, t):
        if t.metric != "temp" or t.value is None:
            return
        smoothed = self.filters.get(t.device, Kalman()).step(t.value)
        self.filters[t.device] = smoothed
        yield (t.device, t.value, round(smoothed.estimate, 4), round(smoothed.error, 4))


class Cusum(ab.Operator):
    target: float = 20.0
    slack: float = 1.0
    limit: float = 15.0
    up: float = ab.state(default=0.0)
    down: float = ab.state(default=0.0)

    def process(self, t):
        if t.value is None:
            return
        self.up = max(0.0, self.up + t.value - self.target - self.slack)
        self.down = max(0.0, self.down - t.value + self.target - self.slack)
        if self.up > self.limit or self.down > self.limit:
            yield t.device, "up" if self.up > self.down else "down", max(self.up, self.down)
            self.up = self.down = 0.0


class RingBuffer:
    """The last n values, in an array."""

    def __init__(self, n):
        self.values = [0.0] * n
        self.count = 0

    def push(self, value):
        self.values[self.count % len(self.values)] = value
        self.count += 1

    def full(self):
        return self.count >= len(self.values)

    def __iter__(self):
        return iter(self.values if self.full() else islice(self.values, self.count))


class VibrationEnergy:
    def __init__(self):
        self.rings = {}

    def __call__(self, t):
        if t.value is None:
            return
        ring = self.rings.get(t.device)
        if ring is None:
            ring = RingBuffer(4)
            self.rings[t.device] = ring
        ring.push(t.value)
        if ring.full():
            yield t.device, math.sqrt(sum(v * v for v in ring) / 4)


class NumpyWindow:
    """Mean and spread of the last eight values, with numpy."""

    def __init__(self):
        self.history = {}

    def __call__(self, t):
        if t.value is None:
            return
        past = self.history.get(t.device, np.empty(0))
        past = np.append(past, t.value)[-8:]
        self.history[t.device] = past
        if past.size >= 3:
            yield t.device, float(past.mean()), float(past.std(ddof=1)), float(np.percentile(past, 90))


class RateOfChange:
    def __init__(self):
        self.previous = {}

    def __call__(self, t):
        with contextlib.suppress(KeyError):
            value, ts = self.previous[t.device, t.metric]
            if t.value is not None and t.ts > ts:
                yield t.device, t.metric, (t.value - value) / (t.ts - ts)
        if t.value is not None:
            self.previous[t.device, t.metric] = t.value, t.ts


class FillForward:
    """Missing values take the last good one of the device's metric."""

    def __init__(self):
        self.last = {}

    def __call__(self, t):
        series = (t.device, t.metric)
        if t.value is not None:
            self.last[series] = t.value
            return t
        if series in self.last:
            return t.but(value=self.last[series])
        return None


class Histogram:
    EDGES = (0, 10, 15, 20, 25, 30)

    def __init__(self):
        self.bins = defaultdict(lambda: [0] * (len(self.EDGES) + 1))

    def __call__(self, t):
        if t.value is None:
            return
        bins = self.bins[t.metric, t.site]
        bins[bisect.bisect(self.EDGES, t.value)] += 1
        if sum(bins) % 5 == 0:
            yield t.metric, t.site, list(bins)


class BatteryWatch:
    """Voltage that fell three times in a row."""

    def __init__(self):
        self.falls = {}
        self.volts = {}

    def __call__(self, t):
        before = self.volts.get(t.device)
        self.volts[t.device] = t.volts
        if before is None or t.volts >= before:
            self.falls[t.device] = 0
            return
        self.falls[t.device] += 1
        if self.falls[t.device] >= 2:
            yield t.device, t.volts, self.falls[t.device]


class DutyCycle(ab.Operator):
    """Share of the time a device ran hot."""

    def __init__(self, hot=22.0):
        self.hot = hot
        self.totals = {}

    def process(self, t):
        if t.value is None:
            return
        since, last, running, busy = self.totals.get(t.device, (t.ts, t.ts, False, 0))
        if running:
            busy += t.ts - last
        self.totals[t.device] = since, t.ts, t.value > self.hot, busy
        if t.ts > since:
            yield t.device, busy / (t.ts - since)


PAIR = "device string, metric string"
ENTRIES = [
    stateless("calibrate", READINGS, lambda s: s.map(calibrate)),
    stateless("to_band", READINGS, lambda s: s.flat_map(to_band, schema=f"{PAIR}, band string")),
    stateless("valid_range", READINGS, lambda s: s.filter(partial(valid, 5.0, 35.0))),
    stateless(
        "battery_model", READINGS, lambda s: s.map(battery_model, schema="device string, failing double, low boolean")
    ),
    per_key(
        "moving_average",
        READINGS,
        lambda s: s.process(MovingAverage(5), schema=f"{PAIR}, mean double"),
        "device",
        "metric",
    ),
    per_key(
        "spikes",
        READINGS,
        lambda s: s.process(SpikeDetector(1.5), schema="device string, value double, verdict string"),
        "device",
    ),
    per_key(
        "stuck",
        READINGS,
        lambda s: s.process(StuckDetector(), schema="device string, value double, verdict string"),
        "device",
    ),
    per_key(
        "heartbeat",
        READINGS,
        lambda s: s.process(Heartbeat(), schema="device string, silent_from long, seconds long"),
        "device",
    ),
    per_key("median_filter", READINGS, lambda s: s.process(MedianFilter(), schema=READINGS.schema), "device", "metric"),
    per_key(
        "hysteresis",
        READINGS,
        lambda s: s.process(Hysteresis(), schema="device string, state string, ts long"),
        "device",
    ),
    per_key(
        "kalman",
        READINGS,
        lambda s: s.process(KalmanSmoother(), schema="device string, raw double, smooth double, error double"),
        "device",
    ),
    per_key(
        "cusum",
        READINGS,
        lambda s: s.process(Cusum(limit=10.0), by="device", schema="device string, direction string, sum double"),
        "device",
    ),
    per_key(
        "vibration_energy",
        READINGS,
        lambda s: s.process(VibrationEnergy(), schema="device string, rms double"),
        "device",
    ),
    per_key(
        "numpy_window",
        READINGS,
        lambda s: s.process(NumpyWindow(), schema="device string, mean double, std double, p90 double"),
        "device",
    ),
    per_key(
        "rate_of_change",
        READINGS,
        lambda s: s.process(RateOfChange(), schema=f"{PAIR}, slope double"),
        "device",
        "metric",
    ),
    per_key("fill_forward", READINGS, lambda s: s.process(FillForward(), schema=READINGS.schema), "device", "metric"),
    per_key(
        "site_histogram",
        READINGS,
        lambda s: s.process(Histogram(), schema="metric string, site string, bins array<long>"),
        "metric",
        "site",
    ),
    per_key(
        "battery_watch",
        READINGS,
        lambda s: s.process(BatteryWatch(), schema="device string, volts double, falls long"),
        "device",
    ),
    per_key("duty_cycle", READINGS, lambda s: s.process(DutyCycle(), schema="device string, share double"), "device"),
]
