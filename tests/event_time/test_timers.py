"""Timers: kept with the key's state, called in an order that is part of the definition."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_parallel
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, STEPS, build, cuts, rows, windows


class Silence(ab.Operator):
    """Says when a key was silent for a while, and again and again, a few times."""

    gap: int = 5
    last: int = ab.state(default=None)
    times: int = ab.state(default=0)
    key: int = ab.state(default=None)

    def process(self, t):
        if self.last is not None:
            self.timers.cancel(self.last + self.gap)
        self.last, self.times, self.key = t.at, 0, t.k
        self.timers.at(t.at + self.gap)
        if t.x < 0:
            self.timers.at(t.at - 20)  # passed already, mostly
            yield t

    def on_timer(self, time):
        self.times += 1
        if self.times < 3:
            self.timers.at(time + self.gap)
            self.timers.at(time - 1)
        yield (self.key if self.key is not None else 0, time, self.times)
        if self.times > 2 and not self.timers.pending:
            self.last = self.key = None
            self.times = 0


class Seen(ab.Operator):
    """Counts a key's tuples, and tells the count by the clock of the epochs, a while after the first."""

    seen: int = ab.state(default=0)
    key: int = ab.state(default=None)

    def process(self, t):
        if not self.seen:
            self.timers.after(2)
        self.seen += 1
        self.key = t.k

    def on_timer(self, time):
        yield (self.key, int(time.timestamp()), self.seen)
        self.seen, self.key = 0, None


TIMED = {
    **STEPS,
    "silence": lambda s: s.process(Silence(), by="k", schema=COLUMNS),
    "long silence": lambda s: s.process(Silence(gap=12), by="k", schema=COLUMNS),
}
steps = st.lists(st.sampled_from(sorted(TIMED)), min_size=0, max_size=3)


def built(stream, chosen):
    for step in chosen:
        stream = TIMED[step](stream)
    return stream


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), before=steps, after=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_timers_are_called_in_parallel_as_by_one_thread(data, before, after, channels, seed):
    epochs = data.draw(cuts(data.draw(rows())))
    stream = built(source(epochs, lateness=1, every=data.draw(st.sampled_from([1, 4]))), [*before, "silence", *after])
    assert run_parallel(stream, channels=channels, seed=seed) == stream.run_sequential()


@settings(max_examples=EXAMPLES // 3, deadline=None, print_blob=True)
@given(data=st.data(), before=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_timers_by_the_clock_are_called_when_an_epoch_begins(data, before, channels, seed):
    epochs = data.draw(cuts(data.draw(rows())))
    clocks = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=5)))
    stream = built(source(epochs), before).process(Seen(), by="k", schema=COLUMNS, time="clock")
    stream = windows(stream, 3)  # event time passes by an operator that goes by the clock
    found = run_parallel(stream, channels=channels, seed=seed, clocks_ms=clocks)
    assert found == stream.run_sequential(clocks_ms=clocks)


@settings(max_examples=EXAMPLES // 4, deadline=None, print_blob=True)
@given(data=st.data(), seed=st.integers(0, 999))
def test_timers_move_with_their_keys(tmp_path_factory, data, seed):
    epochs = data.draw(cuts(data.draw(rows())))
    stream = built(source(epochs), ["silence", "long silence"])
    checkpoint, written = str(tmp_path_factory.mktemp("checkpoint")), {}
    for number in range(len(epochs)):
        run = ParallelRun(stream, checkpoint, channels=data.draw(st.integers(1, 5)), seed=seed, written=written)
        run.run_epochs(last=number)
    assert run.output == stream.run_sequential()


def test_timers_without_event_time_go_by_the_clock():
    stream = from_epochs([[(1, 0, 5)], [(2, 0, 5)], [(3, 0, 5)]], COLUMNS).process(Seen(), by="k", schema=COLUMNS)
    clocks = [0, 1000, 2500]
    assert stream.run_sequential(clocks_ms=clocks) == [(1, 2, 1)]
    assert run_parallel(stream, clocks_ms=clocks) == [(1, 2, 1)]


def test_a_timer_is_set_in_the_columns_own_kind_of_time():
    class Bell(ab.Operator):
        def process(self, t):
            self.timers.after(datetime.timedelta(seconds=5)) if t.k > 1 else self.timers.at(t.at)

        def on_timer(self, time):
            return (time, len(self.timers.pending), self.timers.now >= time)

    start = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    epochs = [[(k, start + datetime.timedelta(seconds=3 * k)) for k in range(5)]]
    stream = from_epochs(epochs, "k long, at timestamp").event_time("at")
    rung = stream.process(Bell(), by="k", schema="at timestamp, left long, passed boolean")
    found = rung.run_sequential()
    assert [(row.at - start).seconds for row in found] == [0, 3, 8, 11] and all(row.passed for row in found)
    assert run_parallel(rung) == found


def test_a_timer_after_some_time_can_be_set_with_the_first_tuple():
    class Bell(ab.Operator):
        key: int = ab.state(default=None)

        def process(self, t):
            self.key = t.k
            self.timers.after(5)

        def on_timer(self, time):
            yield (self.key, time, len(self.timers.pending))

    stream = source([[(1, 10, 0)], [(2, 12, 0), (1, 13, 0)], [(3, 40, 0)]])
    rung = stream.process(Bell(), by="k", schema=COLUMNS)
    # The first counts from 10, where the watermark begins; the others from where it was before them.
    assert rung.run_sequential() == [(1, 15, 1), (2, 15, 0), (1, 17, 0), (3, 18, 0)]
    assert run_parallel(rung, channels=3) == rung.run_sequential()


def test_what_does_not_go_together_is_refused_when_the_program_is_built():
    stream = from_epochs([[]], COLUMNS)

    class Both(Silence):
        def on_punctuation(self):
            return None

    class Clash(Silence):
        timer_due: int = ab.state(default=0)

    for operator, more, words in [
        (Silence(), {"time": "event"}, "needs a stream with event time"),
        (Silence(), {"time": "later"}, "expected 'event' or 'clock'"),
        (Silence(), {"ttl": 5}, "ttl and timers"),
        (Both(), {}, "make it two operators"),
        (Clash(), {}, "choose another"),
    ]:
        with pytest.raises(ProgramError, match=words):
            stream.process(operator, by="k", schema=COLUMNS, **more)


class Sums(ab.Operator):
    total: int = ab.state(default=0)
    key: int = ab.state(default=None)

    def process(self, t):
        self.total, self.key = self.total + t.x, t.k

    def on_punctuation(self):
        yield (self.key, 0, self.total)


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(data=st.data(), channels=st.integers(1, 6))
def test_users_operators_are_called_at_punctuations(data, channels):
    epochs = data.draw(cuts(data.draw(rows())))
    stream = from_epochs(epochs, COLUMNS).punctuate(lambda t: t.x > 3).process(Sums(), by="k", schema=COLUMNS)
    assert run_parallel(stream, channels=channels) == stream.run_sequential()


def test_what_a_timer_emits_need_not_have_the_operators_key():
    """A chain behind it must not take the key for granted: it is routed anew."""

    class Other(ab.Operator):
        def process(self, t):
            self.timers.at(t.at + 3)
            yield t

        def on_timer(self, time):
            yield (time % 2, time, 1)

    epochs = [[(k % 5, k, 1) for k in range(40)]]
    stream = source(epochs).process(Other(), by="k", schema=COLUMNS)
    stream = build(stream, ["running"])
    assert run_parallel(stream, channels=7) == stream.run_sequential()
