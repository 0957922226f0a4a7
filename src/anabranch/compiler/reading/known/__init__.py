"""What the interpreter knows about Python itself: functions and methods, by identity, never by name.

A name can be rebound (``len = my_len``), so everything here is looked up with the object a name stands
for. What is in no table is unknown, and unknown is never safe.

    effects.py              what an entry says
    library_functions.py    functions of Python and its standard library
    library_classes.py      classes of it, and class methods
    array_functions.py      functions of numpy
    value_methods.py        what may be done with a value
    impurities.py           what makes a result depend on more than the arguments
    lookup.py               finding a function in all of these
"""

from anabranch.compiler.reading.known.array_functions import NEW_ARRAYS
from anabranch.compiler.reading.known.effects import Effect
from anabranch.compiler.reading.known.impurities import IMPURE, is_chance
from anabranch.compiler.reading.known.lookup import effect_of, impurity_of, impurity_of_module
from anabranch.compiler.reading.known.value_methods import (
    ALL_MUTATORS,
    CONTAINERS,
    DATA_TYPES,
    ENUM,
    IMPURE_VALUE_METHODS,
    KEEPABLE,
    METHOD_CALLBACKS,
    MUTATORS,
    REITERABLE,
    SUBSCRIPT_METHODS,
    UNORDERED,
    attribute_result,
    method_result,
    mutating_result,
)

__all__ = [
    "ALL_MUTATORS",
    "CONTAINERS",
    "DATA_TYPES",
    "ENUM",
    "IMPURE",
    "IMPURE_VALUE_METHODS",
    "KEEPABLE",
    "METHOD_CALLBACKS",
    "MUTATORS",
    "NEW_ARRAYS",
    "REITERABLE",
    "SUBSCRIPT_METHODS",
    "UNORDERED",
    "Effect",
    "attribute_result",
    "effect_of",
    "impurity_of",
    "impurity_of_module",
    "is_chance",
    "method_result",
    "mutating_result",
]
