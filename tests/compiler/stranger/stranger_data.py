"""The rows on which the programs run: twelve domains, made with fixed seeds."""

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.compiler.stranger.stranger_entry import Data

Rows = list[tuple[Any, ...]]
START = 1_700_000_000


def _payments() -> Rows:
    rng = random.Random(11)
    cards = [f"4000-{n:04d}" for n in range(9)]
    merchants = ["grocer", "fuel", "casino", "airline", "books", "crypto"]
    rows, now = [], START
    for _ in range(150):
        now += rng.choice([2, 15, 40, 300, 4000])
        amount = rng.choice([1.0, 9.99, 49.5, 250.0, 1200.0, 5000.0]) + rng.randrange(100) / 100
        country = rng.choice(["DE", "DE", "DE", "FR", "US", "NG"])
        channel = rng.choice(["pos", "web", "atm"])
        rows.append((rng.choice(cards), rng.choice(merchants), amount, country, now, channel))
    return rows


def _readings() -> Rows:
    rng = random.Random(12)
    devices = [f"dev{n}" for n in range(8)]
    rows, now = [], START
    for n in range(160):
        now += rng.randrange(1, 60)
        metric = rng.choice(["temp", "temp", "hum", "vib"])
        value = None if n % 19 == 7 else round(rng.gauss(20, 6) + (40 if n % 23 == 0 else 0), 2)
        rows.append(
            (rng.choice(devices), metric, value, now, round(rng.uniform(2.9, 4.2), 2), f"site{rng.randrange(3)}")
        )
    return rows


def _clicks() -> Rows:
    rng = random.Random(13)
    users = [f"u{n}" for n in range(10)]
    pages = ["/", "/search?q=red+shoes&page=2", "/product/17", "/product/4?ref=mail", "/cart", "/checkout", "/thanks"]
    agents = [
        "Mozilla/5.0 (iPhone) Safari/604.1",
        "Mozilla/5.0 (X11; Linux) Firefox/119.0",
        "Googlebot/2.1",
        "curl/8.1",
    ]
    referrers = [
        None,
        "https://www.google.com/search?q=shoes",
        "https://mail.example.org/",
        "http://t.co/x?utm_source=tw",
    ]
    rows, now = [], START
    for _ in range(170):
        now += rng.choice([1, 5, 30, 200, 1000])
        rows.append((rng.choice(users), rng.choice(pages), now, rng.choice(referrers), rng.choice(agents)))
    return rows


def _log_lines() -> Rows:
    rng = random.Random(14)
    hosts = [f"10.0.{n}.{n * 7 % 250 + 1}" for n in range(8)]
    rows = []
    for n in range(120):
        at = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(seconds=n * 37)
        host, status = rng.choice(hosts), rng.choice([200, 200, 200, 301, 404, 500, 503])
        path = rng.choice(
            ["/index.html", "/api/v1/items/42", "/api/v2/users/7?full=1", "/static/a.css", "/admin/../etc"]
        )
        method = rng.choice(["GET", "GET", "POST", "DELETE"])
        when = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = f'{host} - bob [{when}] "{method} {path} HTTP/1.1" {status} {rng.randrange(9000)}'
        if n % 17 == 5:
            line = "-- rotated --"
        level = rng.choice(["DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
        rows.append((host, line, level, f"svc-{rng.randrange(7)}", n))
    return rows


def _trades() -> Rows:
    rng = random.Random(15)
    last = {name: float(rng.randrange(20, 200)) for name in ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "GGG")}
    rows, now = [], START
    for _ in range(180):
        now += rng.randrange(0, 4)
        symbol = rng.choice(list(last))
        last[symbol] = round(max(1.0, last[symbol] * (1 + rng.gauss(0, 0.02))), 2)
        rows.append(
            (symbol, last[symbol], rng.randrange(1, 20) * 100, rng.choice("BS"), now, rng.choice(["X", "N", "Q"]))
        )
    return rows


def _plays() -> Rows:
    rng = random.Random(16)
    players = [f"p{n}" for n in range(8)]
    actions = ["join", "kill", "death", "assist", "loot", "leave", "chat"]
    rows, now = [], START
    for _ in range(170):
        now += rng.randrange(1, 90)
        rows.append(
            (rng.choice(players), rng.choice(["arena", "island"]), rng.choice(actions), rng.randrange(-5, 60), now)
        )
    return rows


def _impressions() -> Rows:
    rng = random.Random(17)
    rows, now = [], START
    for n in range(160):
        now += rng.randrange(1, 50)
        event = rng.choice(["impression", "impression", "impression", "click", "conversion"])
        bid = round(rng.uniform(0.05, 4.0), 3)
        rows.append(
            (f"c{rng.randrange(7)}", f"user{rng.randrange(12)}", event, bid, now, f"r{n - n % 5 * (n % 3 == 0)}")
        )
    return rows


def _positions() -> Rows:
    rng = random.Random(18)
    where = {f"truck-{n}": [52.0 + n / 10, 13.0 + n / 10] for n in range(7)}
    rows, now = [], START
    for _ in range(160):
        now += rng.randrange(5, 120)
        truck = rng.choice(list(where))
        moving = rng.random() < 0.7
        speed = round(rng.uniform(5, 110), 1) if moving else 0.0
        if moving:
            where[truck][0] += rng.uniform(-0.05, 0.05)
            where[truck][1] += rng.uniform(-0.05, 0.05)
        status = rng.choice(["loading", "driving", "driving", "unloading", "idle"])
        rows.append((truck, round(where[truck][0], 5), round(where[truck][1], 5), speed, now, status))
    return rows


def _messages() -> Rows:
    rng = random.Random(19)
    texts = [
        "Hello @ann, have you seen https://example.org/a?b=1 ?  #news #Python",
        "Invoice 2024-0117: total EUR 1.234,50 due 2024-02-01",
        "the quick brown fox jumps over the lazy dog",
        "GREAT!!! I love it :) :)",
        "meh. this is bad, really bad :(",
        "",
        "call me at +49 30 1234567 or mail bob@example.com",
        "naïve café — Zürich",
        "level noon racecar tenet",
    ]
    rows, now = [], START
    for n in range(140):
        now += rng.choice([1, 3, 20, 90])
        rows.append((n, f"author{rng.randrange(8)}", f"#room{rng.randrange(6)}", rng.choice(texts), now))
    return rows


def _packets() -> Rows:
    rng = random.Random(20)
    sources = [f"192.168.{n % 3}.{n + 10}" for n in range(9)] + ["fe80::1", "not-an-ip"]
    targets = ["8.8.8.8", "10.1.2.3", "172.16.0.9", "203.0.113.5", "1.1.1.1", "10.9.8.7"]
    rows, now = [], START
    for _ in range(170):
        now += rng.randrange(0, 6)
        flags = rng.choice(["S", "SA", "A", "A", "FA", "R"])
        port = rng.choice([22, 53, 80, 443, 8080, 3389])
        rows.append((rng.choice(sources), rng.choice(targets), port, rng.randrange(40, 1500), flags, now))
    return rows


def _orders() -> Rows:
    rng = random.Random(21)
    goods = ["apple", "bread", "cheese", "dates", "eggs", "fish"]
    rows = []
    for n in range(150):
        items = [rng.choice(goods) for _ in range(rng.randrange(0, 5))]
        prices = [round(rng.uniform(0.5, 30), 2) for _ in items]
        attributes = {"gift": rng.choice(["yes", "no"]), "coupon": rng.choice(["", "TENOFF", "FREESHIP"])}
        event = rng.choice(["created", "paid", "shipped", "delivered", "cancelled"])
        at = datetime(2024, 3, 30, 22, 0, tzinfo=UTC) + timedelta(minutes=13 * n)
        total = Decimal(rng.randrange(0, 50000)) / 100
        day = date(2024, 3, 30) + timedelta(days=n // 20)
        rows.append(
            (f"o{rng.randrange(12)}", f"cust{rng.randrange(8)}", event, items, prices, attributes, total, at, day)
        )
    return rows


def _documents() -> Rows:
    rng = random.Random(22)
    rows = []
    for n in range(120):
        body: Any = {
            "id": n,
            "user": {"name": f"user {rng.randrange(9)}", "tags": rng.sample(["a", "b", "c", "d"], rng.randrange(4))},
            "score": rng.choice([None, 0.5, 0.9, "n/a"]),
            "at": f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}T0{rng.randrange(10)}:15:00+02:00",
        }
        text = json.dumps(body) if n % 11 else "{broken"
        fields = f"{n};{rng.choice(['north', 'south'])};{rng.randrange(1000)},{rng.randrange(100):02d};x"
        rows.append((f"feed{rng.randrange(7)}", text, fields, rng.choice(["v1", "v2"]), n))
    return rows


PAYMENTS = Data("card string, merchant string, amount double, country string, ts long, channel string", _payments)
READINGS = Data("device string, metric string, value double, ts long, volts double, site string", _readings)
CLICKS = Data("user string, page string, ts long, referrer string, agent string", _clicks)
LOGS = Data("host string, line string, level string, service string, seq long", _log_lines)
TRADES = Data("symbol string, price double, size long, side string, ts long, venue string", _trades)
PLAYS = Data("player string, arena string, action string, points long, ts long", _plays)
ADS = Data("campaign string, user string, event string, bid double, ts long, request string", _impressions)
POSITIONS = Data("truck string, lat double, lon double, speed double, ts long, status string", _positions)
MESSAGES = Data("id long, author string, room string, text string, ts long", _messages)
PACKETS = Data("src string, dst string, port long, size long, flags string, ts long", _packets)
ORDERS = Data(
    "order_id string, customer string, event string, items array<string>, prices array<double>, "
    "attributes map<string,string>, total decimal(10,2), at timestamp, day date",
    _orders,
)
DOCUMENTS = Data("feed string, body string, fields string, version string, seq long", _documents)
