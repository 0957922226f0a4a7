"""Punctuations: signals that travel in a stream between its tuples, and what ports do to them.

Three kinds (*Safe*, section 5.1). A *window* punctuation ends a group of tuples. A *final* punctuation ends
the stream. A *pulse* belongs to the runtime: a splitter sends it on every channel so that the merger hears
from channels whose operators drop everything; it never leaves the parallel part of a program.

A punctuation carries no data, so a splitter sends a copy to every channel and the merger lets one copy out.

Ports concern window punctuations only. An operator can neither hold back the end of the stream nor see a
pulse: both pass every port.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Punctuation(Enum):
    """A signal between tuples."""

    WINDOW = "window"
    """The tuples since the last window punctuation form one group."""
    FINAL = "final"
    """Nothing follows on this stream."""
    PULSE = "pulse"
    """Every number up to this one has been sent; known to splitters, channels and mergers only."""


class PunctuationError(Exception):
    """A port got a stream that its punctuation mode does not allow."""


class InputPort(Enum):
    """What an input port needs of the streams connected to it."""

    EXPECTING = "expecting"
    """Works on windows that punctuations end: needs exactly one punctuated stream."""
    OBLIVIOUS = "oblivious"
    """Works with or without punctuations."""

    def check(self, operator: str, punctuated: Iterable[bool]) -> None:
        """Raise unless the port may be fed by these streams.

        Parameters
        ----------
        operator
            The name to put in the message.
        punctuated
            For each stream connected to the port: is it punctuated?
        """
        streams = list(punctuated)
        if self is InputPort.EXPECTING and sum(streams) != 1:
            raise PunctuationError(
                f"input port of {operator}: it expects punctuations, so exactly one of its streams must be "
                f"punctuated; found {sum(streams)} of {len(streams)}. Put `punctuate` before it, or remove "
                f"the punctuations of all streams but one."
            )


class OutputPort(Enum):
    """What an output port does with window punctuations."""

    GENERATING = "generating"
    """Sends its own; those that come in end here."""
    REMOVING = "removing"
    """Sends none."""
    PRESERVING = "preserving"
    """Sends on those that come in."""

    def is_punctuated(self, punctuated: Iterable[bool]) -> bool:
        """Whether the output stream is punctuated, given for each input stream whether it is.

        A fan-in of two punctuated streams is not: the windows of one cut into those of the other.

        >>> OutputPort.PRESERVING.is_punctuated([True, False])
        True
        >>> OutputPort.PRESERVING.is_punctuated([True, True])
        False
        """
        if self is OutputPort.PRESERVING:
            return sum(punctuated) == 1
        return self is OutputPort.GENERATING

    def passes(self, punctuation: Punctuation) -> bool:
        """Whether a punctuation that came in goes out again."""
        return self is OutputPort.PRESERVING or punctuation is not Punctuation.WINDOW


def must_share_region(upstream: OutputPort, upstream_is_parallel: bool, downstream: InputPort) -> bool:
    """Whether the operator behind `downstream` has to stand in the region of the operator before it.

    The replicas of a generating operator would each send their own punctuations, so none of them means
    anything behind the merger (section 5.3). Punctuations from before the region are the same in every
    channel and may leave it; that is why a preserving port asks for nothing here: ask about the port that
    generated what it passes on.
    """
    return upstream_is_parallel and upstream is OutputPort.GENERATING and downstream is InputPort.EXPECTING
