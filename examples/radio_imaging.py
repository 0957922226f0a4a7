"""Radio imaging, the application of the *Operators* paper (its section 4), on Anabranch, with its convolution elastic.

An interferometer measures visibilities: samples of the Fourier transform of the sky, at places (u, v, w) that the
antennas decide. Gridding brings them onto a regular grid by convolution, one kernel for each w-plane; a Fourier
transform of the grid is the image.

    visibility ─► scale ─┬─► matrix ─┬─ join ─► parts ─► convolve (elastic) ─► blocks ─► final grid ─► image
                         └─► cells ──┘        L × L         local grids        sum       sum           FFT

Each measurement is scaled to all frequencies, in blocks. Two indexings side by side tell for each sample the w-plane
and phase of the kernel (*matrix*) and the cell of the grid (*cells*); they are joined. The kernel is divided into L × L
parts, each of which is convolved by itself into a local grid; local grids are summed for each block of frequencies, and
the blocks to the final grid, both in the order of one thread: to the last bit what one thread would have.

    python examples/radio_imaging.py            draws the sky it finds, beside a direct transform
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

import anabranch as ab

GRID = 48
"""Cells of the grid, and pixels of the image, to a side."""
CELL, W_CELL = 2.0, 4.0
"""Wavelengths to a cell, and to a w-plane."""
FREQUENCIES = np.linspace(0.75, 1.0, 32) * (GRID // 2 - 5) * CELL
BLOCKS, PARTS, PLANES = 4, 2, 4
SUPPORT, OVERSAMPLING = 8, 8
SOURCES = ((0.10, -0.05, 1.0), (-0.12, 0.08, 0.7), (0.03, 0.15, 0.5))
"""The sky: (l, m, brightness) of points."""

COORDINATES = {"coordinates": "seq long, u double, v double, w double"}
SAMPLES = "seq long, block long, u array<double>, v array<double>, w array<double>, re array<double>, im array<double>"
MATRIX = "seq long, block long, plane array<long>, phase array<long>, re array<double>, im array<double>"
CELLS = "seq long, block long, cell array<long>"
PART = f"part long, {MATRIX}, cell array<long>"
LOCAL = "block long, grid binary"


# -- the instrument -------------------------------------------------------------------------------------------


def depth_of(l: Any, m: Any) -> Any:  # noqa: E741 - as radio astronomers call it
    return np.sqrt(1.0 - l * l - m * m) - 1.0


def sky_transform(u: Any, v: Any, w: Any) -> Any:
    """The visibility at places in wavelengths."""
    return sum(a * np.exp(-2j * np.pi * (u * l + v * m + w * depth_of(l, m))) for l, m, a in SOURCES)  # noqa: E741


def directions() -> tuple[Any, Any]:
    """(l, m) of each pixel."""
    side = (np.arange(GRID) - GRID // 2) / (GRID * CELL)
    return np.meshgrid(side, side, indexing="ij")


def taper() -> Any:
    l, m = directions()  # noqa: E741
    return np.exp(-40.0 * (l * l + m * m))


@functools.cache
def kernels() -> Any:
    """The convolution matrix: (plane, phase, SUPPORT, SUPPORT), the transform of what w does to the sky, tapered."""
    l, m = directions()  # noqa: E741
    fine = GRID * OVERSAMPLING
    found = []
    for plane in range(PLANES):
        screen = taper() * np.exp(2j * np.pi * (plane + 0.5) * W_CELL * depth_of(l, m))
        padded = np.zeros((fine, fine), dtype=complex)
        start = (fine - GRID) // 2
        padded[start : start + GRID, start : start + GRID] = screen
        wide = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(padded))) * OVERSAMPLING**2
        middle = fine // 2
        offsets = (np.arange(SUPPORT) - SUPPORT // 2) * OVERSAMPLING + middle
        phases = [wide[np.ix_(offsets - a, offsets - b)] for a in range(OVERSAMPLING) for b in range(OVERSAMPLING)]
        found.append(phases)
    return np.array(found)


# -- operators ------------------------------------------------------------------------------------------------


def visibility(t):
    """Scale a measurement to every frequency, and see what the instrument measures there, in blocks."""
    for block, frequencies in enumerate(np.split(FREQUENCIES, BLOCKS)):
        u, v, w = t.u * frequencies, t.v * frequencies, t.w * frequencies * PLANES * W_CELL / FREQUENCIES.max()
        seen = sky_transform(u, v, w)
        scaled = (u / CELL, v / CELL, w / W_CELL)
        yield (t.seq, block, *(each.tolist() for each in scaled), seen.real.tolist(), seen.imag.tolist())


def matrix(t):
    """Where in the convolution matrix a sample belongs: its w-plane, and how it lies between cells."""
    planes = np.minimum(np.array(t.w).astype(int), PLANES - 1)
    phases = [np.rint(np.array(x) * OVERSAMPLING).astype(int) % OVERSAMPLING for x in (t.u, t.v)]
    return (t.seq, t.block, planes.tolist(), (phases[0] * OVERSAMPLING + phases[1]).tolist(), t.re, t.im)


def cells(t):
    """The cell of the grid that a sample's kernel begins in."""
    nearest = [np.rint(np.array(x) * OVERSAMPLING).astype(int) // OVERSAMPLING for x in (t.u, t.v)]
    first = [each + GRID // 2 - SUPPORT // 2 for each in nearest]
    return (t.seq, t.block, (first[0] * GRID + first[1]).tolist())


def parts(t):
    """The sub-areas of the matrix, each to be convolved by itself."""
    for part in range(PARTS * PARTS):
        yield (part, *t)


def convolved(t: Any, grid: Any) -> None:
    """Add the samples of a tuple to a grid, with one part of the kernel."""
    size = SUPPORT // PARTS
    row, column = divmod(t.part, PARTS)
    chosen = kernels()[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
    values = np.array(t.re) + 1j * np.array(t.im)
    for value, plane, phase, cell in zip(values, t.plane, t.phase, t.cell, strict=True):
        y, x = divmod(cell, GRID)
        y, x = y + row * size, x + column * size
        grid[y : y + size, x : x + size] += value * chosen[plane, phase]


@ab.model(state="stateless")
def convolve(t):
    """A local grid of one part of the matrix: nothing is shared."""
    grid = np.zeros((GRID, GRID), dtype=complex)
    convolved(t, grid)
    return (t.block, grid.tobytes())


class Sum(ab.Operator):
    """Adds grids of a block, and gives the sum when all have come."""

    expected: int = 0
    count: int = ab.state(default=0)
    grid: bytes = ab.state(default=b"")

    def process(self, t):
        self.count += 1
        added = np.frombuffer(t.grid, dtype=complex)
        self.grid = (np.frombuffer(self.grid, dtype=complex) + added).tobytes() if self.grid else t.grid
        if self.count == self.expected:
            yield (t.block, self.grid)


def program(coordinates: ab.Stream, count: int = 24, **concurrency: Any) -> ab.Stream:
    """The final grid, as one tuple."""
    local = areas_of(coordinates).map(convolve, LOCAL, name="convolve", elastic=True, **concurrency)
    blocks = local.process(Sum(expected=count * PARTS * PARTS), by="block", schema=LOCAL, name="blocks")
    all_blocks = blocks.map(lambda t: (0, t.grid), LOCAL, name="together")
    return all_blocks.process(Sum(expected=BLOCKS), by="block", schema=LOCAL, name="final")


def areas_of(coordinates: ab.Stream) -> ab.Stream:
    """Samples, with where they belong, for each part of the matrix."""
    samples = coordinates.flat_map(ab.model(state="stateless")(visibility), SAMPLES, name="scale")
    in_matrix = samples.map(ab.model(state="stateless")(matrix), MATRIX, name="matrix")
    in_grid = samples.map(ab.model(state="stateless")(cells), CELLS, name="cells")
    indexed = in_matrix.join(in_grid, by=["seq", "block"], window=ab.count(1), name="indexed")
    return indexed.flat_map(parts, PART, name="parts")


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Random coordinates between 0 and 1, as the paper has them."""
    places = np.random.default_rng(seed).random((count, 3))
    return {"coordinates": [{"seq": n, "u": u, "v": v, "w": w} for n, (u, v, w) in enumerate(places.tolist())]}


# -- images ---------------------------------------------------------------------------------------------------


def image(final: bytes) -> Any:
    """The image of a grid."""
    grid = np.frombuffer(final, dtype=complex).reshape(GRID, GRID)
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(grid))).real / taper() * GRID * GRID


def direct_image(rows: list[dict[str, Any]]) -> Any:
    """The same without a grid: every sample contributes to every pixel."""
    l, m = directions()  # noqa: E741
    depth = depth_of(l, m)
    found = np.zeros((GRID, GRID))
    for row in rows:
        u, v = row["u"] * FREQUENCIES, row["v"] * FREQUENCIES
        w = row["w"] * FREQUENCIES * PLANES * W_CELL / FREQUENCIES.max()
        for a, b, c, seen in zip(u, v, w, sky_transform(u, v, w), strict=True):
            found += (seen * np.exp(2j * np.pi * (a * l + b * m + c * depth))).real
    return found


def drawn(picture: Any) -> str:
    """An image as text."""
    shades = " .:-=+*#%@"
    scaled = np.clip((picture - picture.min()) / (picture.max() - picture.min()) * (len(shades) - 1), 0, 9).astype(int)
    return "\n".join("".join(shades[value] * 2 for value in line) for line in scaled[::2, ::2])


def main() -> int:
    from anabranch.testing import run_parallel

    rows = generate(24, seed=1)
    stream = program(ab.from_rows(rows["coordinates"], COORDINATES["coordinates"], name="coordinates"))
    stream.explain()
    (found,) = run_parallel(stream, channels=2)
    same = [tuple(row) for row in stream.run_sequential()] == [tuple(found)]
    picture, direct = image(found.grid), direct_image(rows["coordinates"])
    difference = np.abs(picture - direct).max() / direct.max()
    print(drawn(picture), drawn(direct), sep="\n\nand by a direct transform:\n\n")
    print(f"\nlargest difference: {difference:.1%} of the peak; as on one thread, to the last bit: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
