"""Punctuations: signals that travel in a stream between its tuples, and what ports do to them.

Three kinds (*Safe*, section 5.1). A *window* punctuation ends a group of tuples. A *final* punctuation ends
the stream. A *pulse* belongs to the runtime: a splitter sends it on every channel so that the merger hears
from channels whose operators drop everything; it never leaves the parallel part of a program.

A punctuation carries no data, so a splitter sends a copy to every channel and the merger lets one copy out.

Ports concern window punctuations only. An operator can neither hold back the end of the stream nor see a
pulse: both pass every port.
"""

from __future__ import annotations

from enum import Enum


class Punctuation(Enum):
    """A signal between tuples."""

    WINDOW = "window"
    """The tuples since the last window punctuation form one group."""
    FINAL = "final"
    """Nothing follows on this stream."""
    PULSE = "pulse"
    """Every number up to this one has been sent; known to splitters, channels and mergers only."""


class OutputPort(Enum):
    """What an output port does with window punctuations."""

    GENERATING = "generating"
    """Sends its own; those that come in end here."""
    REMOVING = "removing"
    """Sends none."""
    PRESERVING = "preserving"
    """Sends on those that come in."""

    def passes(self, punctuation: Punctuation) -> bool:
        """Whether a punctuation that came in goes out again."""
        return self is OutputPort.PRESERVING or punctuation is not Punctuation.WINDOW
