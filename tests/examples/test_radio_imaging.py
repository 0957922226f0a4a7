"""Radio imaging, the application of *Operators*: the image of a direct transform, and of one thread to the bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import anabranch as ab
from anabranch.testing import run_parallel
from examples import radio_imaging as radio

COUNT = 12
ROWS = radio.generate(COUNT, seed=1)["coordinates"]


@pytest.fixture(scope="module")
def stream() -> ab.Stream:
    source = ab.from_rows(ROWS, radio.COORDINATES["coordinates"], rows_per_epoch=5, name="coordinates")
    return radio.program(source, COUNT, min_workers=2, max_workers=4, period=0.02)


@pytest.fixture(scope="module")
def final(stream: ab.Stream) -> bytes:
    (found,) = stream.run_sequential()
    return found.grid


def test_the_image_is_that_of_a_direct_transform(final: bytes) -> None:
    found, direct = radio.image(final), radio.direct_image(ROWS)
    edge = radio.SUPPORT
    inside = np.abs(found - direct)[edge:-edge, edge:-edge]
    assert inside.max() < 0.1 * direct.max(), "w is known to a plane, a place to an eighth of a cell"
    assert found.argmax() == direct.argmax()


def test_the_brightest_source_is_where_the_sky_has_it(final: bytes) -> None:
    l, m, _ = max(radio.SOURCES, key=lambda each: each[2])  # noqa: E741
    y, x = divmod(int(radio.image(final).argmax()), radio.GRID)
    scale = radio.GRID * radio.CELL
    assert abs(y - radio.GRID // 2 - l * scale) <= 3 and abs(x - radio.GRID // 2 - m * scale) <= 3


@pytest.mark.parametrize("channels", [1, 3])
def test_local_grids_are_summed_to_the_bit_as_by_one_thread(stream: ab.Stream, final: bytes, channels: int) -> None:
    (found,) = run_parallel(stream, channels=channels, seed=channels)
    assert found.grid == final


def test_one_shared_grid_gives_the_same_image_but_not_the_same_bits_for_certain(final: bytes) -> None:
    """The paper's first attempt: all workers add to one grid. It needs a lock, and sums in the order of chance."""
    grid, lock = np.zeros((radio.GRID, radio.GRID), dtype=complex), threading.Lock()
    source = ab.from_rows(ROWS, radio.COORDINATES["coordinates"], name="coordinates")
    tuples = radio.areas_of(source).run_sequential()

    def work(some):
        for t in some:
            with lock:
                radio.convolved(t, grid)

    threads = [threading.Thread(target=work, args=(tuples[at::2],)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = np.frombuffer(final, dtype=complex).reshape(grid.shape)
    np.testing.assert_allclose(grid, expected, atol=1e-9 * np.abs(expected).max())


def test_convolution_is_elastic_and_explain_says_so(stream: ab.Stream) -> None:
    text = stream.plan().explain()
    assert "elastic      threads, at most 4, at least 2" in text
