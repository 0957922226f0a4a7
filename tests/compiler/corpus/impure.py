"""Operators that depend on more than the tuple."""

import datetime
import os
import random
import time
import uuid

from tests.compiler.corpus import expect, expect_function


@expect_function("unknown", mode="map")
def reads_the_clock(t):
    return t.but(value=time.time())


@expect_function("unknown", mode="map")
def reads_the_date(t):
    return t.but(day=datetime.date.today())


@expect_function("unknown", mode="map")
def reads_now(t):
    return t.but(name=datetime.datetime.now().isoformat())


@expect_function("unknown", mode="map")
def draws(t):
    return t.but(value=random.random())


_random = random.Random(7)


@expect_function("unknown", mode="map")
def draws_from_seeded(t):
    return t.but(value=_random.random())


@expect_function("unknown", mode="map")
def makes_identifier(t):
    return t.but(name=str(uuid.uuid4()))


@expect_function("unknown", mode="map")
def reads_environment(t):
    return t.but(name=os.environ.get("HOME", ""))


@expect_function("unknown", mode="map")
def reads_file(t):
    with open("/etc/hostname") as f:
        return t.but(name=f.read())


@expect_function("unknown", mode="map")
def hashes_text(t):
    return t.but(count=hash(t.name) % 100)


@expect_function("unknown", mode="map")
def uses_address(t):
    return t.but(count=id(t) % 100)


@expect_function("unknown")
def order_of_a_set(t):
    for letter in set(t.name):
        yield t.but(name=letter)


@expect_function("unknown", mode="map")
def text_of_a_set(t):
    return t.but(name=str(set(t.name)))


@expect_function("unknown", mode="map")
def identity_of_objects(t):
    return t.but(count=int(t.name is t.name.strip()))


@expect_function("unknown", mode="map")
def list_of_a_set(t):
    return t.but(name=list({t.name, "b", "c"})[0])
