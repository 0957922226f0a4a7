"""The types of numpy's arrays as text, and back: of records with their fields, their names and where they lie."""

from __future__ import annotations

import ast

import numpy as np


def type_text(kind: np.dtype) -> str:
    """A type as text.

    >>> type_text(np.dtype("int64")), type_text(np.dtype([("n", "i8"), ("at", "f4", 2)]))
    ('<i8', "[('n', '<i8'), ('at', '<f4', (2,))]")
    """
    return kind.str if kind.names is None else repr(np.lib.format.dtype_to_descr(kind))


def type_of_text(text: str) -> np.dtype:
    """The type that a text stands for."""
    return np.dtype(text) if text[:1] not in "[(" else np.lib.format.descr_to_dtype(ast.literal_eval(text))


def is_kept_type(kind: np.dtype) -> bool:
    """Whether arrays of a type are their bytes: no objects, and all of it is in the text."""
    return not kind.hasobject and type_of_text(type_text(kind)) == kind
