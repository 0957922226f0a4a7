"""Reading the patterns of a `match`: which names they bind, and to what."""

from __future__ import annotations

import ast

from anabranch.compiler.reading import known
from anabranch.compiler.reading.emitting import Emitting
from anabranch.compiler.reading.values import PLAIN_VALUE, Value, join


class Patterns(Emitting):
    """Takes a value apart along a pattern."""

    def _pattern(self, pattern: ast.pattern, subject: Value) -> None:
        if isinstance(pattern, ast.MatchValue):
            self._comparable(self.evaluate(pattern.value), pattern)
            self._comparable(subject, pattern)
        elif isinstance(pattern, ast.MatchSingleton):
            pass
        elif isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None:
                self._pattern(pattern.pattern, subject)
            if pattern.name is not None:
                self.assign_name(pattern.name, subject, pattern)
        elif isinstance(pattern, ast.MatchOr):
            for each in pattern.patterns:
                self._pattern(each, subject)
        elif isinstance(pattern, ast.MatchSequence):
            parts = self.tuple_parts(subject)
            exact = parts is not None and len(parts) == len(pattern.patterns)
            inside = self.content(subject, pattern) if not subject.is_scalar else PLAIN_VALUE
            self._matchable(subject, pattern)
            for place, each in enumerate(pattern.patterns):
                whole = isinstance(each, ast.MatchStar)
                if exact and parts is not None and not whole:
                    self._pattern(each, parts[place])
                elif isinstance(each, ast.MatchStar):
                    if each.name is not None:
                        self.assign_name(each.name, self.make(each, frozenset({list}), inside), each)
                else:
                    self._pattern(each, inside)
        elif isinstance(pattern, ast.MatchMapping):
            self._matchable(subject, pattern)
            handle = self.handle_of(subject)
            for key, each in zip(pattern.keys, pattern.patterns, strict=True):
                self._pattern(each, self.subscript(subject, self.evaluate(key), pattern))
            if pattern.rest is not None:
                if handle is not None:
                    self.whole(handle, pattern, "matches it")
                rest = self.make(pattern, frozenset({dict}), self.content(subject, pattern))
                self.assign_name(pattern.rest, rest, pattern)
        elif isinstance(pattern, ast.MatchClass):
            kind = self.evaluate(pattern.cls).only
            self._matchable(subject, pattern)
            if not isinstance(kind, type) or type(kind) not in (type, type(known.ENUM)):
                self.unknown(pattern, "matches a class that is not known")
            for each in pattern.patterns:
                self._pattern(each, join(subject, PLAIN_VALUE).without_text())
            for name, each in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
                self._pattern(each, self.attribute(subject, name, pattern))
        else:
            self._unsupported(pattern)

    def _matchable(self, subject: Value, node: ast.AST) -> None:
        self.plain_use(subject, node, "matches it")
