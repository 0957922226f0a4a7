"""Reading the patterns of a `match`: which names they bind, and to what."""

from __future__ import annotations

import ast

from anabranch.compiler.reading import known
from anabranch.compiler.reading.attributes import attribute_of
from anabranch.compiler.reading.displays import make_object, tuple_parts
from anabranch.compiler.reading.names import assign_name
from anabranch.compiler.reading.operations import compare_plainly
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.subscripts import item_of
from anabranch.compiler.reading.tameness import plain_use
from anabranch.compiler.reading.values import PLAIN_VALUE, Value, join


def read_pattern(reading: Reading, pattern: ast.pattern, subject: Value) -> None:
    if isinstance(pattern, ast.MatchValue):
        compare_plainly(reading, reading.evaluate(pattern.value), pattern)
        compare_plainly(reading, subject, pattern)
    elif isinstance(pattern, ast.MatchSingleton):
        pass
    elif isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            read_pattern(reading, pattern.pattern, subject)
        if pattern.name is not None:
            assign_name(reading, pattern.name, subject, pattern)
    elif isinstance(pattern, ast.MatchOr):
        for each in pattern.patterns:
            read_pattern(reading, each, subject)
    elif isinstance(pattern, ast.MatchSequence):
        parts = tuple_parts(reading, subject)
        exact = parts is not None and len(parts) == len(pattern.patterns)
        inside = reading.content(subject, pattern) if not subject.is_scalar else PLAIN_VALUE
        _matchable(reading, subject, pattern)
        for place, each in enumerate(pattern.patterns):
            whole = isinstance(each, ast.MatchStar)
            if exact and parts is not None and not whole:
                read_pattern(reading, each, parts[place])
            elif isinstance(each, ast.MatchStar):
                if each.name is not None:
                    assign_name(reading, each.name, make_object(reading, each, frozenset({list}), inside), each)
            else:
                read_pattern(reading, each, inside)
    elif isinstance(pattern, ast.MatchMapping):
        _matchable(reading, subject, pattern)
        handle = reading.handle_of(subject)
        for key, each in zip(pattern.keys, pattern.patterns, strict=True):
            read_pattern(reading, each, item_of(reading, subject, reading.evaluate(key), pattern))
        if pattern.rest is not None:
            if handle is not None:
                reading.whole(handle, pattern, "matches it")
            rest = make_object(reading, pattern, frozenset({dict}), reading.content(subject, pattern))
            assign_name(reading, pattern.rest, rest, pattern)
    elif isinstance(pattern, ast.MatchClass):
        kind = reading.evaluate(pattern.cls).only
        _matchable(reading, subject, pattern)
        if not isinstance(kind, type) or type(kind) not in (type, type(known.ENUM)):
            reading.unknown(pattern, "matches a class that is not known")
        for each in pattern.patterns:
            read_pattern(reading, each, join(subject, PLAIN_VALUE).without_text())
        for name, each in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            read_pattern(reading, each, attribute_of(reading, subject, name, pattern))
    else:
        reading.not_followed(pattern)


def _matchable(reading: Reading, subject: Value, node: ast.AST) -> None:
    plain_use(reading, subject, node, "matches it")
