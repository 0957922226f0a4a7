"""What engineers write runs as on one thread, or is refused before anything starts."""

import os

import pytest

import anabranch as ab
from tests.compiler.engineers import ALL
from tests.compiler.product_path import compare

ROWS = [("abc"[n * 5 % 3], n * 7 % 23, n / 4 - 2) for n in range(27)]
#: Channels and seeds; all of them in the nightly run.
WAYS = ((1, 1), (2, 2), (3, 3)) if os.environ.get("ANABRANCH_ENGINEERS") else ((3, 2),)
#: Refused with what to change.
REFUSED: set[str] = set()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("cut", (4, 10) if os.environ.get("ANABRANCH_ENGINEERS") else (7,))
def test_it_gives_what_one_thread_gives(name, cut):
    make, more = ALL[name]
    source = ab.from_rows(ROWS, "k string, x long, v double", rows_per_epoch=cut)
    stream = source.process(make(), schema="k string, n long, s string", **more)
    found = compare(stream, WAYS)
    assert found.verdict == ("refused" if name in REFUSED else "equal"), f"{found.verdict}: {found.difference}"
    assert not found.sequential.error and found.sequential.rows[0]
