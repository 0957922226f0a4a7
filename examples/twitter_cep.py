"""Twitter CEP, the kernel of *Safe*: five consecutive tweets of one author with the same hash-tags.

    lines ─ parse ─┐ shuffle ┌─ match {author} ─►

The tweets come as XML. Whether the author's last tweets go on with a sequence depends on all of them, so the pattern
has many matches that are begun and never finished.

    python examples/twitter_cep.py --records 20000 --channels 4
"""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import anabranch as ab

LINES = {"lines": "line string"}
HASH_TAG = re.compile(r"#\w+")


class Tweet(NamedTuple):
    """A tweet with what the pattern looks at."""

    author: str
    contents: str
    timestamp: int
    tags: str


class Campaign(NamedTuple):
    """Five tweets that say the same."""

    author: str
    tags: str
    first: int
    last: int


# The XML parser is written in C: the compiler cannot look into it, and takes the author's word, as SPL did.
@ab.model(state="stateless")
def parse(t: Any) -> Tweet:
    """``<tweet><author>…</author><contents>…</contents><timestamp>…</timestamp></tweet>``"""
    tweet = ElementTree.fromstring(t.line)
    contents = tweet.findtext("contents") or ""
    tags = " ".join(sorted({tag.lower() for tag in HASH_TAG.findall(contents)}))
    return Tweet(tweet.findtext("author") or "", contents, int(tweet.findtext("timestamp") or 0), tags)


def program(lines: ab.Stream) -> ab.Stream:
    """The sequences, in the order in which their fifth tweets come."""
    pattern = [
        ab.step("first", lambda t: t.tags != ""),
        ab.step("others", lambda t, m: t.tags == m.first[0].tags).times(4),
    ]
    tweets = lines.map(parse, name="parse")
    return tweets.match(
        by="author",
        pattern=pattern,
        emit=lambda m: (m.first[0].author, m.first[0].tags, m.first[0].timestamp, m.others[-1].timestamp),
        schema=Campaign,
        name="match",
    )


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Authors who keep to a subject for a while; a few write most of the tweets."""
    chance = random.Random(seed)
    authors = [f"author{number}" for number in range(60)]
    weights = [1 / (rank + 1) for rank in range(len(authors))]
    tags = ["#spark", "#Streams", "#news", "#fun", "#café"]
    subject: dict[str, list[str]] = {}
    rows = []
    for number, author in enumerate(chance.choices(authors, weights, k=count)):
        if author not in subject or chance.random() < 0.25:
            subject[author] = chance.sample(tags, chance.choice([0, 1, 1, 2]))
        words = [*subject[author], *chance.sample(["R&D", "coffee", "<3", "meeting", "at last"], 2)]
        chance.shuffle(words)
        rows.append(
            {
                "line": f"<tweet><author>{author}</author><contents>{escape(' '.join(words))}</contents>"
                f"<timestamp>{1_300_000_000 + number}</timestamp></tweet>"
            }
        )
    return {"lines": rows}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, LINES, 20_000)


if __name__ == "__main__":
    main()
