"""Operators with broadcast state are run again, too: what all keys see alike, from the tuples that are for all."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.engine.worker.arrival_calls import ArrivalCalls
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.errors import VerifyError
from anabranch.testing import ParallelRun, replay
from tests.engine.planted_verdicts import DECLARED, switch_proof_off
from tests.operators.test_broadcast import EXAMPLES, PAYMENTS, RULES, Alerts, Fragile, Patient, programs, simple

SHARE = st.sampled_from([0.3, 1.0])


@settings(max_examples=3 * EXAMPLES, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(stream=programs(), channels=st.integers(1, 8), seed=st.integers(0, 999), share=SHARE, ends=st.booleans())
def test_no_program_gives_a_false_alarm(tmp_path_factory, stream, channels, seed, share, ends):
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    run = ParallelRun(stream, checkpoint, channels=channels, seed=seed, verify=share)
    run.run_epochs()
    if ends:
        run.end()
    assert run.output == stream.run_sequential(ends=ends)
    told = [each.verify for each in run.progress if each.verify is not None]
    assert not any(each.differences for each in told)
    for each in told:
        uncovered = set(each.not_covered) & {"Alerts", "Patient", "Marked"}
        assert not uncovered, each.not_covered


def wrong(stream, checkpoint, channels=3):
    run = ParallelRun(stream, checkpoint, channels=channels, verify=1.0, watch="off")
    with pytest.raises(VerifyError) as caught:
        run.run_epochs()
    assert not run.output, "nothing of the epoch is written"
    with open(caught.value.file, "rb") as file:
        return DifferenceRecord.from_json(file.read()), caught.value.file


def timed():
    rules = ab.from_rows([("a", 8), ("b", 0)], RULES)
    stream = ab.from_rows(TUPLES, PAYMENTS).event_time("x")
    return stream.process(Patient(), by="k", schema=PAYMENTS, broadcast=rules)


TUPLES = [(k, "ab"[k % 2], k) for k in range(12)]


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (lambda: simple(Alerts(), TUPLES, [("a", 8), ("b", 0)]), ArrivalCalls),
        (timed, TimedCalls),
    ],
)
def test_a_channel_that_misses_a_tuple_for_all_is_found(make, calls, channels, monkeypatch, tmp_path):
    """The state differs, whether or not anything that was emitted does."""
    taken = calls._take_broadcast

    def forgetful(self, position, row):
        if row.kind != "a":
            taken(self, position, row)

    with monkeypatch.context() as planted:
        planted.setattr(calls, "_take_broadcast", forgetful)
        record, file = wrong(make(), str(tmp_path), channels)
    assert "broadcast" in record.text() or record.kind == "output"
    assert replay(make(), file) is not None, "the tasks did it wrong, whoever runs it now"


def test_a_channel_that_holds_something_else_is_found_though_nobody_saw_it(monkeypatch, tmp_path):
    """The rule comes last: no key sees it."""
    stream = simple(Alerts(), [], [("a", 8)])
    taken = ArrivalCalls._take_broadcast
    monkeypatch.setattr(ArrivalCalls, "_take_broadcast", lambda self, at, row: taken(self, at, row._replace(limit=9)))
    record, _ = wrong(stream, str(tmp_path))
    assert record.kind == "state" and "[9]" in record.tasks and "[8]" in record.one_thread


class Counts(Alerts):
    """What it keeps outside of its state is one thing in one task and another in several."""

    calls = [0]  # noqa: RUF012

    def process(self, t):
        self.calls[0] += 1
        yield (t.k, t.kind, self.calls[0] + len(self.limits))


def test_what_is_kept_elsewhere_is_found_beside_broadcast_state(monkeypatch, tmp_path):
    switch_proof_off(monkeypatch, DECLARED)
    record, _ = wrong(simple(Counts(), TUPLES, [("a", 1)]), str(tmp_path))
    assert record.title.startswith("Counts") and record.kind in ("output", "kept elsewhere")


def test_a_policy_still_leaves_it_out(tmp_path):
    stream = ab.from_rows(TUPLES[:3], PAYMENTS).process(
        Fragile(), by="k", schema=PAYMENTS, broadcast=ab.from_rows([], RULES), on_error="skip"
    )
    run = ParallelRun(stream, str(tmp_path), verify=1.0)
    run.run_epochs()
    assert "are undone" in run.progress[0].verify.not_covered["Fragile"]
