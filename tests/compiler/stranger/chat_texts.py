"""Texts: tokens, sentiment, entities, normal forms, similarity; flood control in rooms."""

import difflib
import html
import itertools
import operator
import re
import string
import unicodedata
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import attrgetter, itemgetter

import anabranch as ab
from tests.compiler.stranger.stranger_data import MESSAGES
from tests.compiler.stranger.stranger_entry import per_key, stateless

# ---------------------------------------------------------------- stateless

STOPWORDS = frozenset(["the", "a", "an", "is", "it", "me", "at", "or", "have", "you", "over", "this"])
LEXICON = {"great": 2, "love": 3, "bad": -2, "meh": -1, ":)": 1, ":(": -1}
TO_SPACES = str.maketrans(dict.fromkeys(string.punctuation, " "))
EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
PHONE = re.compile(r"\+\d[\d ]{7,}\d")
AMOUNT = re.compile(r"(EUR|USD)\s*([\d.]+),(\d\d)")


def words(t):
    counts = Counter(w for w in t.text.lower().translate(TO_SPACES).split() if w not in STOPWORDS)
    for word, count in sorted(counts.items(), key=itemgetter(1, 0), reverse=True):
        yield t.id, word, count


def sentiment(t):
    score, hits = 0, 0
    for token in t.text.lower().replace("!", " ").replace(",", " ").replace(".", " ").split():
        weight = LEXICON.get(token)
        if weight is None:
            continue
        score += weight
        hits += 1
    else:
        label = "positive" if score > 0 else "negative" if score < 0 else "neutral"
    return {"id": t.id, "score": score / hits if hits else 0.0, "label": label}


def redact(t):
    text = EMAIL.sub(lambda m: m.group()[0] + "***@" + m.group().split("@")[1], t.text)
    return t.but(text=PHONE.sub("<phone>", text))


def amounts(t):
    found = []
    for currency, whole, cents in AMOUNT.findall(t.text):
        found.append((t.id, currency, int(whole.replace(".", "")) * 100 + int(cents)))
    return found


def slug(t):
    decomposed = unicodedata.normalize("NFKD", t.text)
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    return t.id, re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-"), html.escape(t.text)


def run_length(t):
    """Runs of equal characters."""
    runs = ((char, sum(1 for _ in group)) for char, group in groupby(t.text))
    yield from ((t.id, char, n) for char, n in runs if n >= 2 and not char.isspace())


def bigrams(t):
    tokens = t.text.split()
    pairs = list(itertools.pairwise(tokens))
    tokens.sort(key=str.casefold)
    tokens.insert(0, f"<{len(tokens)}>")
    return (t.id, [" ".join(p) for p in pairs], tokens)


CLOSEST = ["hello world", "the quick brown fox", "invoice total due", "call or mail me"]


def closest_template(t):
    ratios = [(difflib.SequenceMatcher(None, t.text.lower(), c).ratio(), c) for c in CLOSEST]
    ratio, template = max(ratios)
    return t.id, template, round(ratio, 4)


def palindromes(t):
    def is_palindrome(word):
        letters = [c for c in word if c.isalpha()]
        return len(letters) > 2 and letters == letters[::-1]

    return [(t.id, word) for word in t.text.lower().split() if is_palindrome(word)]


def hash_vector(t):
    """A bag of words in eight numbers, by the hashing trick."""
    vector = [0.0] * 8
    for word in t.text.split():
        h = reduce(lambda acc, c: (acc * 31 + ord(c)) & 0xFFFFFFFF, word, 7)
        vector[h % 8] += 1 if h & 256 else -1
    norm = sum(map(operator.mul, vector, vector)) ** 0.5 or 1.0
    return t.id, [v / norm for v in vector]


def caesar(shift):
    lower, upper = string.ascii_lowercase, string.ascii_uppercase
    table = str.maketrans(lower + upper, lower[shift:] + lower[:shift] + upper[shift:] + upper[:shift])
    return lambda t: t.but(text=t.text.translate(table))


class Naive:
    """A little model that was trained elsewhere."""

    WEIGHTS = {"invoice": 2.5, "total": 1.0, "love": -1.5, "call": 0.7}  # noqa: RUF012

    def __init__(self, bias=-0.8):
        self.bias = bias

    def features(self, text):
        return {w.strip(string.punctuation).lower() for w in text.split()}

    def logit(self, text):
        return self.bias + sum(self.WEIGHTS.get(f, 0.0) for f in self.features(text))

    def predict(self, t):
        logit = self.logit(t.text)
        return t.id, logit, "business" if logit > 0 else "private"


def mentions(t):
    kinds = {"@": "user", "#": "tag"}
    for token in t.text.split():
        kind = kinds.get(token[:1])
        if kind and (name := token[1:].rstrip(",.!?")):
            yield t.id, kind, name


# ---------------------------------------------------------------- keyed


class FloodControl:
    """Not the same text twice in a row, not more than three messages of an author in half a minute."""

    def __init__(self):
        self.last_text = {}
        self.times = defaultdict(lambda: deque(maxlen=3))

    def allowed(self, t):
        times = self.times[t.author]
        if self.last_text.get(t.author) == t.text:
            return False
        return not (len(times) == 3 and t.ts - times[0] < 30)

    def __call__(self, t):
        if self.allowed(t):
            self.last_text[t.author] = t.text
            self.times[t.author].append(t.ts)
            yield t


@dataclass
class Topic:
    """What a room talks about."""

    counts: Counter
    messages: int = 0


class Topics:
    def __init__(self):
        self.rooms = {}

    def __call__(self, t):
        topic = self.rooms.setdefault(t.room, Topic(Counter()))
        topic.messages += 1
        topic.counts.update(w for w in re.findall(r"\w{4,}", t.text.lower()) if w not in STOPWORDS)
        if topic.messages % 5 == 0:
            yield t.room, [w for w, _ in topic.counts.most_common(3)]
            for word in list(topic.counts):
                topic.counts[word] //= 2
            topic.counts += Counter()


class Conversation(ab.Operator):
    """How long until somebody else answers in a room."""

    waiting: tuple = ab.state(default=None)

    def process(self, t):
        if self.waiting is not None:
            author, ts = self.waiting
            if author != t.author:
                yield t.room, author, t.author, t.ts - ts
        self.waiting = attrgetter("author", "ts")(t)


ENTRIES = [
    stateless("word_counts", MESSAGES, lambda s: s.flat_map(words, schema="id long, word string, n long")),
    stateless("sentiment", MESSAGES, lambda s: s.map(sentiment, schema="id long, score double, label string")),
    stateless("redact", MESSAGES, lambda s: s.map(redact, schema=MESSAGES.schema)),
    stateless("amounts", MESSAGES, lambda s: s.flat_map(amounts, schema="id long, currency string, cents long")),
    stateless("slug", MESSAGES, lambda s: s.map(slug, schema="id long, slug string, escaped string")),
    stateless("run_length", MESSAGES, lambda s: s.flat_map(run_length, schema="id long, char string, n long")),
    stateless(
        "bigrams", MESSAGES, lambda s: s.map(bigrams, schema="id long, pairs array<string>, tokens array<string>")
    ),
    stateless(
        "closest_template", MESSAGES, lambda s: s.map(closest_template, schema="id long, template string, ratio double")
    ),
    stateless("palindromes", MESSAGES, lambda s: s.flat_map(palindromes, schema="id long, word string")),
    stateless("hash_vector", MESSAGES, lambda s: s.map(hash_vector, schema="id long, vector array<double>")),
    stateless("caesar", MESSAGES, lambda s: s.map(caesar(13), schema=MESSAGES.schema)),
    stateless("naive_model", MESSAGES, lambda s: s.map(Naive().predict, schema="id long, logit double, label string")),
    stateless("mentions", MESSAGES, lambda s: s.flat_map(mentions, schema="id long, kind string, name string")),
    per_key("flood_control", MESSAGES, lambda s: s.process(FloodControl()), "author"),
    per_key("room_topics", MESSAGES, lambda s: s.process(Topics(), schema="room string, words array<string>"), "room"),
    per_key(
        "answer_times",
        MESSAGES,
        lambda s: s.process(
            Conversation(), by="room", schema="room string, asked string, answered string, seconds long"
        ),
        "room",
    ),
]
