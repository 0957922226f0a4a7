"""Names of options that are neither ours nor a format's, but look like one of ours: slips of the pen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from anabranch.errors import ProgramError
from anabranch.program.options import OPTIONS, Option, is_ours

_BY_NAME: Mapping[str, Option] = {option.name.lower(): option for option in OPTIONS}
# What Spark's writers of files and its console know. Beside these, anything that is not close to a name of ours passes
# too: formats may have more.
_OF_FORMATS = """
    charset charToEscapeQuoteEscaping codec compression dateFormat datetimeRebaseMode delimiter emptyValue encoding
    escape escapeQuotes header ignoreLeadingWhiteSpace ignoreNullFields ignoreTrailingWhiteSpace int96RebaseMode lineSep
    locale maxRecordsPerFile mergeSchema mode multiLine nullValue numRows pathGlobFilter pretty quote quoteAll
    recursiveFileLookup sep timestampFormat timestampNTZFormat timeZone truncate wholetext
""".lower().split()
_CLOSE = 0.7
_ENDINGS = re.compile(r"(?<=...)(ing|ed|es|s|e)$")


def _words(name: str) -> frozenset[str]:
    """The words of a name, without case and endings: ``snapshots`` has those of ``snapshotInterval``, and fewer."""
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^A-Za-z_\-]+", name)
    return frozenset(_ENDINGS.sub("", word.lower()) for word in found)


def check_names(names: Iterable[str]) -> None:
    """ProgramError for a name that is neither ours nor the format's but looks like one of ours: a slip of the pen.

    Examples
    --------
    >>> check_names(["maxChannels", "compression", "anything.else"])
    >>> check_names(["maxChanels"])
    Traceback (most recent call last):
        ...
    anabranch.errors.ProgramError: unknown option 'maxChanels': did you mean 'maxChannels'? docs/options.md has all
    """
    for name in names:
        if is_ours(name) or name.lower() in _OF_FORMATS:
            continue
        meant = _meant(name)
        if meant:
            raise ProgramError(f"unknown option {name!r}: did you mean {meant!r}? docs/options.md has all")


def _meant(name: str) -> str:
    """The option of ours that a name looks like: its letters, or its words and perhaps some more; empty: none."""
    close = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=_CLOSE)
    if close:
        return _BY_NAME[close[0]].name
    said = _words(name)
    holding = [option.name for option in OPTIONS if said and said <= _words(option.name)]
    return min(holding, key=lambda each: len(_words(each)), default="")
