"""Twitter NLP, the kernel of both papers: the words of each tweet, their lengths and how often they come.

    tweets ─ analyse ─►          one operator without state that makes many tuples of one

What the papers did with a language engine is done here with what Python has: words are found, links and mentions are
left out, words that carry no meaning are dropped, plural and tense endings are cut off.

    python examples/twitter_nlp.py --records 20000 --channels 4
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import anabranch as ab

TWEETS = {"tweets": "id long, text string"}
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
NO_WORD = re.compile(r"https?://\S+|@\w+|&\w+;")
WITHOUT_MEANING = "a an and are at be but for from i in is it me my not of on or so that the this to was we you"
FILLERS = frozenset(WITHOUT_MEANING.split())
VOCABULARY = (
    "coffee morning train delayed running stations match goals scored watching players Müller weather rains rained "
    "great the a and of so in my is this election votes counted parties don't can't café naïve walking dogs"
)


class Used(NamedTuple):
    """A word of a tweet."""

    id: int
    word: str
    length: int
    frequency: int


def stem(word: str) -> str:
    """The word without the commonest endings of English."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def analyse(t: Any) -> Iterator[Used]:
    """The words of a tweet, in the order in which they first come."""
    frequencies: dict[str, int] = {}
    for found in WORD.findall(NO_WORD.sub(" ", t.text)):
        word = stem(found.lower())
        if word not in FILLERS:
            frequencies[word] = frequencies.get(word, 0) + 1
    for word, frequency in frequencies.items():
        yield Used(t.id, word, len(word), frequency)


def program(tweets: ab.Stream) -> ab.Stream:
    """The words of all tweets."""
    return tweets.flat_map(analyse, name="analyse")


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Tweets of very different lengths: some of one word, some only a link, some that repeat themselves."""
    chance = random.Random(seed)
    vocabulary = VOCABULARY.split()
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]
    rows = []
    for number in range(count):
        words = chance.choices(vocabulary, weights, k=min(30, int(chance.paretovariate(0.7))))
        words = [word.upper() if chance.random() < 0.05 else word for word in words]
        if chance.random() < 0.2:
            words.insert(chance.randrange(len(words) + 1), f"@user_{chance.randrange(500)}")
        if chance.random() < 0.15:
            words = [] if chance.random() < 0.3 else words
            words.append(f"https://t.co/{chance.getrandbits(40):x}")
        rows.append({"id": 10_000 + number, "text": " ".join(words) + chance.choice(["", "!", " …", " &amp;", "?"])})
    return {"tweets": rows}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, TWEETS, 20_000)


if __name__ == "__main__":
    main()
