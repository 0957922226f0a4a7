"""PageRank, the kernel of both papers: a vector that goes round a loop until it does not change any more.

    blocks ─┐
            union ─ multiply {block} ─ assemble ─┬─ converged ─ pages ─►
    ranks ──┘                                    └─ not yet ─ send back ──┐
      ▲                                                                   │
      └───────────────────────────── feedback ────────────────────────────┘

The matrix of the web comes in blocks of rows and stays where it was read first. In each round every block is
multiplied with the ranks of the round before, and the parts are put together. Ranks that are sent back enter the next
epoch; when they have settled nothing is sent back, and the program ends.

    python examples/pagerank.py --records 2000 --channels 4
"""

from __future__ import annotations

import random
from typing import Any

import anabranch as ab

# A block of rows of the matrix, or ranks to multiply it with. The matrix is given by columns that are not null: which
# pages (`rows`), and for each of them which pages link to it (`sources`), and how much of their rank they give away
# by each of their links (`weights`).
WORK = (
    "block long, round long, rows array<long>, sources array<array<long>>, weights array<array<double>>, "
    "ranks array<double>"
)
PART = "round long, rows array<long>, products array<double>"
ROUND = "round long, change double, ranks array<double>"
BLOCKS = {"blocks": WORK}
BLOCK_COUNT = 8
DAMPING = 0.85


class Multiply(ab.Operator):
    """Rows of the matrix, and their products with the ranks."""

    rows: list[int] = ab.state(factory=list)
    sources: list[list[int]] = ab.state(factory=list)
    weights: list[list[float]] = ab.state(factory=list)

    def process(self, t: Any) -> Any:
        if t.rows is not None:
            self.rows, self.sources, self.weights = list(t.rows), list(t.sources), list(t.weights)
        products = [
            sum(weight * t.ranks[source] for source, weight in zip(sources, weights, strict=True))
            for sources, weights in zip(self.sources, self.weights, strict=True)
        ]
        yield (t.round, self.rows, products)


class Assemble:
    """The next ranks, when the parts of all blocks have come. This needs everything: it runs on one thread."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.parts = 0
        self.sums: dict[int, float] = {}
        self.ranks: list[float] = []

    def __call__(self, t: Any) -> Any:
        for row, product in zip(t.rows, t.products, strict=True):
            self.sums[row] = product
        self.parts += 1
        if self.parts == self.blocks:
            count = len(self.sums)
            before = self.ranks or [1 / count] * count
            self.ranks = [(1 - DAMPING) / count + DAMPING * self.sums[page] for page in range(count)]
            change = sum(abs(new - old) for new, old in zip(self.ranks, before, strict=True))
            self.parts, self.sums = 0, {}
            yield (t.round, change, self.ranks)


def send_back(t: Any) -> Any:
    """The ranks for every block."""
    for block in range(BLOCK_COUNT):
        yield (block, t.round + 1, None, None, None, t.ranks)


def pages(t: Any) -> Any:
    """A tuple for every page."""
    for page, rank in enumerate(t.ranks):
        yield (page, rank, t.round)


def program(blocks: ab.Stream, tolerance: float = 1e-9) -> ab.Stream:
    """The rank of every page, in order, and the round in which it had settled."""
    ranks = ab.feedback(WORK, name="ranks")
    parts = blocks.union(ranks, name="work").process(Multiply(), by="block", schema=PART, name="multiply")
    rounds = parts.process(Assemble(BLOCK_COUNT), schema=ROUND, name="assemble")
    ranks.close(
        rounds.filter(lambda t: t.change >= tolerance, name="not_yet").flat_map(
            send_back, schema=WORK, name="send_back"
        )
    )
    return rounds.filter(lambda t: t.change < tolerance, name="converged").flat_map(
        pages, schema="page long, rank double, round long", name="pages"
    )


def web(count: int, seed: int) -> list[list[int]]:
    """For each page those it links to: few are linked to by many, and every page links to at least one other."""
    chance = random.Random(seed)
    links = []
    for page in range(count):
        found = {int(count * chance.random() ** 3) for _ in range(chance.randrange(1, 12))} - {page}
        links.append(sorted(found or {(page + 1) % count}))
    return links


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The matrix of a web, in blocks, with the ranks that all begin with."""
    links = web(count, seed)
    sources: list[list[int]] = [[] for _ in range(count)]
    for page, targets in enumerate(links):
        for target in targets:
            sources[target].append(page)
    found = []
    for block in range(BLOCK_COUNT):
        rows = range(block, count, BLOCK_COUNT)
        found.append(
            {
                "block": block,
                "round": 0,
                "rows": list(rows),
                "sources": [sources[row] for row in rows],
                "weights": [[1 / len(links[source]) for source in sources[row]] for row in rows],
                "ranks": [1 / count] * count,
            }
        )
    return {"blocks": found}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, BLOCKS, 1_000)


if __name__ == "__main__":
    main()
