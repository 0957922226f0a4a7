"""The rules of punctuated streams (*Safe*, section 5.2)."""

from __future__ import annotations

from anabranch.papers.merging.punctuation import OutputPort, Punctuation


def test_ports_concern_window_punctuations_only():
    assert {port: port.passes(Punctuation.WINDOW) for port in OutputPort} == {
        OutputPort.GENERATING: False,
        OutputPort.REMOVING: False,
        OutputPort.PRESERVING: True,
    }
    assert all(port.passes(p) for port in OutputPort for p in (Punctuation.FINAL, Punctuation.PULSE))
