"""Pattern matching against a search through all ways to read the tuples of a key."""

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import count, delta, step
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.operators.epoch_context import take_anomalies

COLUMNS = "k string, c string, at long"
CONDITIONS = {
    "a": lambda t: t.c == "a",
    "b": lambda t: t.c == "b",
    "vowel": lambda t: t.c in "ae",
    "any": lambda t: True,
    "same": lambda t, m: not m.tuples or m.tuples[-1].c == t.c,
    "later": lambda t, m: all(each.at < t.at for each in m.tuples),
}
quantifiers = st.sampled_from(["one", "more", "optional", "star", "two", "two to three", "two or more"])
patterns = st.lists(st.tuples(st.sampled_from(sorted(CONDITIONS)), quantifiers), min_size=1, max_size=3).filter(
    lambda steps: any(how not in ("optional", "star") for _, how in steps)
)
rows = st.lists(st.tuples(st.sampled_from("kkl"), st.sampled_from("aabe"), st.integers(0, 9)), max_size=14)
LIMITS = {
    "one": (1, 1),
    "more": (1, None),
    "optional": (0, 1),
    "star": (0, None),
    "two": (2, 2),
    "two to three": (2, 3),
    "two or more": (2, None),
}


def build(steps):
    made = []
    for number, (condition, how) in enumerate(steps):
        each = step(f"s{number}", CONDITIONS[condition])
        made.append(
            {
                "one": lambda each=each: each,
                "more": lambda each=each: each.one_or_more(),
                "optional": lambda each=each: each.optional(),
                "star": lambda each=each: each.one_or_more().optional(),
                "two": lambda each=each: each.times(2),
                "two to three": lambda each=each: each.times(2, 3),
                "two or more": lambda each=each: each.times(2, None),
            }[how]()
        )
    return made


class Found:
    """What was matched so far, for conditions that look back."""

    def __init__(self, tuples):
        self.tuples = tuples


def holds(condition, t, tuples):
    function = CONDITIONS[condition]
    return function(t, Found(tuples)) if condition in ("same", "later") else function(t)


def ways(steps, tuples, place, taken):
    """All ways to give exactly these tuples to the steps from `place` on; what earlier steps take first."""
    if place == len(steps):
        if not tuples:
            yield taken
        return
    condition, how = steps[place]
    least, most = LIMITS[how]
    before = [t for each in taken for t in each]
    fitting = 0
    while fitting < len(tuples) and (most is None or fitting < most):
        if not holds(condition, tuples[fitting], before + tuples[:fitting]):
            break
        fitting += 1
    for size in range(fitting, least - 1, -1):
        yield from ways(steps, tuples[size:], place + 1, [*taken, tuples[:size]])


def strict_matches(steps, tuples, fits):
    """The matches of a key: for each tuple, the earliest beginning from which everything up to it is a match."""
    found, start = [], 0
    for end in range(1, len(tuples) + 1):
        for begin in range(start, end):
            if not all(fits(tuples, begin, at) for at in range(begin, end)):
                continue
            taken = next(ways(steps, tuples[begin:end], 0, []), None)
            if taken is not None:
                found.append((end - 1, taken))
                start = end
                break
    return found


def sizes(m):
    return m.tuples[-1].k, [len(getattr(m, name)) for name in m._names], [t.at for t in m.tuples]


def matched(given, steps, **more):
    stream = ab.from_rows(given, COLUMNS)
    out = stream.match(
        by="k", pattern=build(steps), emit=sizes, schema="k string, n array<long>, at array<long>", **more
    )
    return [(row.k, row.n, row.at) for row in out.run_sequential()]


def expected(given, steps, fits):
    row_class = ab.Schema.of(COLUMNS).row_class
    by_key = collections.defaultdict(list)
    for number, row in enumerate(given):
        by_key[row[0]].append((number, row_class(row)))
    found = []
    for key, numbered in by_key.items():
        for end, taken in strict_matches(steps, [t for _, t in numbered], fits):
            result = key, [len(each) for each in taken], [t.at for each in taken for t in each]
            found.append((numbered[end][0], result))
    return [result for _, result in sorted(found, key=lambda each: each[0])]


@settings(max_examples=400)
@given(rows, patterns)
def test_a_strict_pattern_is_found_as_soon_as_it_can_be(given, steps):
    assert matched(given, steps) == expected(given, steps, lambda tuples, begin, at: True)


@settings(max_examples=200)
@given(rows, patterns, st.integers(1, 5))
def test_within_a_count_a_match_is_not_longer(given, steps, size):
    fits = lambda tuples, begin, at: at - begin < size  # noqa: E731 - a name for the reader
    assert matched(given, steps, within=count(size)) == expected(given, steps, fits)


@settings(max_examples=200)
@given(rows, patterns, st.integers(0, 5))
def test_within_a_delta_no_tuple_is_too_far_above_the_first(given, steps, size):
    fits = lambda tuples, begin, at: tuples[at].at - tuples[begin].at <= size  # noqa: E731
    take_anomalies()
    assert matched(given, steps, within=delta("at", size)) == expected(given, steps, fits)
    newest, backwards = {}, 0
    for k, _, at in given:
        backwards += at < newest.get(k, -1)
        newest[k] = max(at, newest.get(k, -1))
    assert take_anomalies().get(("match", "backwards"), 0) == backwards


def relaxed_from(steps, tuples, begin):
    """All runs that begin with a tuple and skip what they cannot take, by the tuple each ends with."""
    found = []

    def accepts(place, t, taken):
        return holds(steps[place][0], t, [each for part in taken for each in part])

    def enter(place, taken, at):
        """Ways to take the tuple in a step behind `place`."""
        for later in range(place + 1, len(steps)):
            skipped = [*taken, *[[] for _ in range(later - place - 1)]]
            if accepts(later, tuples[at], skipped):
                go(later, [*skipped, [tuples[at]]], at)
            if LIMITS[steps[later][1]][0] > 0:
                return

    def go(place, taken, at):
        least, most = LIMITS[steps[place][1]]
        if len(taken[-1]) >= least and all(LIMITS[how][0] == 0 for _, how in steps[place + 1 :]):
            found.append((at, [*taken, *[[] for _ in range(len(steps) - place - 1)]]))
            return
        for following in range(at + 1, len(tuples)):
            t = tuples[following]
            before = len(found), calls[0]
            if (most is None or len(taken[-1]) < most) and accepts(place, t, taken):
                calls[0] += 1
                go(place, [*taken[:-1], [*taken[-1], t]], following)
            if len(taken[-1]) >= least:
                for later in range(place + 1, len(steps)):
                    skipped = [*taken, *[[] for _ in range(later - place - 1)]]
                    if accepts(later, t, skipped):
                        calls[0] += 1
                        go(later, [*skipped, [t]], following)
                    if LIMITS[steps[later][1]][0] > 0:
                        break
            if calls[0] != before[1]:
                return  # it took the tuple

    calls = [0]
    enter(-1, [], begin)
    return found


@settings(max_examples=300)
@given(rows, patterns)
def test_a_relaxed_pattern_skips_what_does_not_fit(given, steps):
    row_class = ab.Schema.of(COLUMNS).row_class
    by_key = collections.defaultdict(list)
    for number, row in enumerate(given):
        by_key[row[0]].append((number, row_class(row)))
    found = []
    for key, numbered in by_key.items():
        tuples, start = [t for _, t in numbered], 0
        while start < len(tuples):
            runs = [
                (end, begin, place, taken)
                for begin in range(start, len(tuples))
                for place, (end, taken) in enumerate(relaxed_from(steps, tuples, begin))
            ]
            if not runs:
                break
            end, _, _, taken = min(runs, key=lambda run: run[:3])
            result = key, [len(each) for each in taken], [t.at for each in taken for t in each]
            found.append((numbered[end][0], result))
            start = end + 1
    expected = [result for _, result in sorted(found, key=lambda each: each[0])]
    assert matched(given, steps, contiguity="relaxed") == expected


# -- what users see ------------------------------------------------------------------------------------------------


def test_five_tuples_in_a_row_with_the_same_tag():
    rows = [("x", tag, at) for at, tag in enumerate("aabbbbbbccccc")]
    same = step("run", lambda t, m: not m.run or m.run[0].c == t.c).times(5)
    found = ab.from_rows(rows, COLUMNS).match(
        by="k", pattern=[same], emit=lambda m: (m.run[0].c, m.run[0].at), schema="c string, at long"
    )
    assert found.run_sequential() == [("b", 2), ("c", 8)]


def test_by_default_a_match_is_its_key_and_the_tuples_of_each_step():
    rows = [("x", "a", 1), ("x", "a", 2), ("x", "b", 3)]
    pattern = [step("some", CONDITIONS["a"]).one_or_more(), step("end", CONDITIONS["b"])]
    found = ab.from_rows(rows, COLUMNS).match(by="k", pattern=pattern)
    one, two, three = ({"k": k, "c": c, "at": at} for k, c, at in rows)
    assert found.run_sequential() == [("x", [one, two], [three])]
    assert found.columns == ["k", "some", "end"]


def test_runs_that_can_only_become_the_same_are_kept_once():
    rows = [("x", "a", at) for at in range(500)]
    pattern = [step("some", CONDITIONS["a"]).times(3, None), step("end", CONDITIONS["b"])]
    stream = ab.from_rows(rows, COLUMNS).match(by="k", pattern=pattern, contiguity="relaxed", name="it")
    from anabranch.engine.sequential import run_epochs

    ((runs, number, _),) = run_epochs([stream._node]).state("it").values()
    assert number == 500 and len(runs) == 3


def test_a_condition_that_raises_is_told_with_operator_and_tuple():
    stream = ab.from_rows([("x", "a", 1)], COLUMNS).match(by="k", pattern=step("bad", lambda t: t.nope))
    with pytest.raises(OperatorError, match=r"operator match \(.*no column 'nope'"):
        stream.run_sequential()


def test_a_step_that_does_not_exist_is_told():
    stream = ab.from_rows([("x", "a", 1)], COLUMNS).match(by="k", pattern=step("one", lambda t, m: m.two))
    with pytest.raises(OperatorError, match="no step 'two'; steps: one"):
        stream.run_sequential()


def test_null_keys_and_null_attributes_follow_their_policies():
    stream = ab.from_rows([(None, "a", 1), ("x", "a", None), ("x", "a", 2)], COLUMNS)
    take_anomalies()
    found = stream.match(
        by="k", pattern=step("one", CONDITIONS["a"]), within=delta("at", 1, nulls="drop"), null_key="drop"
    )
    assert len(found.run_sequential()) == 1
    assert take_anomalies() == {("match", "null_key"): 1, ("match", "null_attribute"): 1}


def stream():
    return ab.from_rows([], COLUMNS)


one = step("one", CONDITIONS["a"])


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: step("not a name", len), r"step\('not a name', …\): expected a name"),
        (lambda: step("one", 3), r"step\('one', 3\): expected a function"),
        (lambda: one.times(0), "expected whole numbers, 1 or more"),
        (lambda: one.times(3, 2), "the most is less than the least"),
        (lambda: one.times(2).optional(), "expected a step that takes one tuple or more"),
        (lambda: stream().match(by="k", pattern=[]), r"match at .*:\d+: pattern=\[\]: expected steps"),
        (lambda: stream().match(by="k", pattern=[3]), r"match at .*:\d+: pattern=\[3\]: expected steps"),
        (lambda: stream().match(by="k", pattern=[one, one]), "two steps have the name 'one'"),
        (lambda: stream().match(by="k", pattern=[one.optional()]), "every step is optional"),
        (lambda: stream().match(by="k", pattern=[step("k", len)]), "the name of a key column"),
        (lambda: stream().match(by="k", pattern=one, within=3), "within=3: expected count"),
        (lambda: stream().match(by="k", pattern=one, within=delta("c", 3)), "expected a number, date or timestamp"),
        (lambda: stream().match(by="k", pattern=one, contiguity="loose"), "expected 'strict' or 'relaxed'"),
        (lambda: stream().match(by="k", pattern=one, emit=3), "expected a function of a match"),
        (lambda: stream().match(by="k", pattern=one, emit=len), "give schema="),
        (lambda: stream().match(by="nope", pattern=one), "the key 'nope' is not a column"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(build, complaint):
    with pytest.raises((ProgramError, SchemaError), match=complaint):
        build()
