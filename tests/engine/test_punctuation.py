"""The rules of punctuated streams (*Safe*, sections 5.2 and 5.3)."""

from __future__ import annotations

import pytest

from anabranch.engine.merging.punctuation import InputPort, OutputPort, Punctuation, PunctuationError, must_share_region


@pytest.mark.parametrize(
    ("port", "inputs", "punctuated"),
    [
        (OutputPort.GENERATING, [], True),
        (OutputPort.GENERATING, [False], True),
        (OutputPort.REMOVING, [True], False),
        (OutputPort.PRESERVING, [True], True),
        (OutputPort.PRESERVING, [False], False),
        (OutputPort.PRESERVING, [True, False], True),
        (OutputPort.PRESERVING, [True, True], False),
    ],
)
def test_which_streams_are_punctuated(port, inputs, punctuated):
    assert port.is_punctuated(inputs) is punctuated


def test_ports_concern_window_punctuations_only():
    assert {port: port.passes(Punctuation.WINDOW) for port in OutputPort} == {
        OutputPort.GENERATING: False,
        OutputPort.REMOVING: False,
        OutputPort.PRESERVING: True,
    }
    assert all(port.passes(p) for port in OutputPort for p in (Punctuation.FINAL, Punctuation.PULSE))


@pytest.mark.parametrize("streams", [[], [False], [True, True]])
def test_an_expecting_port_wants_exactly_one_punctuated_stream(streams):
    with pytest.raises(PunctuationError, match=f"found {sum(streams)} of {len(streams)}"):
        InputPort.EXPECTING.check("aggregate", streams)
    InputPort.OBLIVIOUS.check("filter", streams)


def test_an_expecting_port_takes_one_punctuated_stream():
    InputPort.EXPECTING.check("aggregate", [True])
    InputPort.EXPECTING.check("aggregate", [False, True])


def test_who_expects_what_replicas_generate_stays_with_them():
    assert must_share_region(OutputPort.GENERATING, True, InputPort.EXPECTING)
    assert not must_share_region(OutputPort.GENERATING, False, InputPort.EXPECTING)
    assert not must_share_region(OutputPort.GENERATING, True, InputPort.OBLIVIOUS)
    assert not must_share_region(OutputPort.PRESERVING, True, InputPort.EXPECTING)
