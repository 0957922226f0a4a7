"""Programs to try and to mutate: the corpus, its mutants, generated operators; and what a stranger wrote."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from tests.compiler import mutants
from tests.compiler.corpus import Case, load
from tests.compiler.fuzzing.detours import HELPERS
from tests.compiler.fuzzing.generated import HEAD, generated
from tests.compiler.fuzzing.mutations import mutated
from tests.compiler.fuzzing.trials import Program

#: They go through the memory of the process, or take emit, which programs cannot use.
_NOT_RUN = frozenset({"walks_the_heap"})


def _text_of(found: Any) -> str | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    except (OSError, SyntaxError, TypeError):
        return None
    if not isinstance(tree, (ast.FunctionDef, ast.ClassDef)):
        return None
    tree.decorator_list = [each for each in tree.decorator_list if "expect" not in ast.unparse(each)]
    return ast.unparse(tree) + "\n"


def of_corpus() -> list[Program]:
    """Every operator of the corpus whose source stands by itself."""
    found = []
    for case in load()[0]:
        program = _of_case(case)
        if program is not None and case.name not in _NOT_RUN:
            found.append(program)
    return found


@functools.cache  # reading the source of a class parses its whole file
def _of_case(case: Case) -> Program | None:
    target: Any = case.make
    makes = True
    if isinstance(target, types.FunctionType) and target.__name__ == "<lambda>":
        target, makes = case.make(), False
    if isinstance(target, types.FunctionType) and target.__closure__:
        return None
    text = _text_of(target)
    if text is None:
        return None
    names = functools.partial(dict, vars(inspect.getmodule(target)))
    return Program(case.name, text, target.__name__, makes, case.mode, case.by, case.truth, names=names)


def planted(every: int = 12, seed: int = 0) -> Iterator[Program]:
    """Safe functions of the corpus with hidden state planted into them, by every way there is.

    Each way is tried with one of so many functions; which, depends on the seed.
    """
    plants = [{"expression": each} for each in mutants.SNEAKY] + [{"statement": each} for each in mutants.STATEMENTS]
    functions = [
        (case, case.make())
        for case in load()[0]
        if case.verdict != "unknown" and isinstance(case.make(), types.FunctionType)
    ]
    for number, plant in enumerate(plants):
        for at in range((number + seed) % every, len(functions), every):
            case, function = functions[at]
            text = mutants.text_of_mutant(function, **plant)
            if text is None or mutants.takes_emit(function):
                continue
            title = f"{case.name} with {next(iter(plant.values()))}"
            mode = "map" if case.mode == "filter" else case.mode
            names = functools.partial(_with_hidden_names, function)
            yield Program(title, text, function.__name__, False, mode, truth="", names=names)


def _with_hidden_names(function: types.FunctionType) -> dict[str, Any]:
    return {**function.__globals__, **mutants.hidden_names()}


def from_scratch(seeds: range) -> Iterator[Program]:
    """Generated operators."""
    for seed in seeds:
        yield generated(seed)


def changed(seeds: range) -> Iterator[Program]:
    """Mutants of generated operators and of the corpus, in turn."""
    corpus = [each for each in of_corpus() if each.title not in ("UsesStore",)]
    for seed in seeds:
        if seed % 3 == 0:
            base = corpus[(seed // 3) % len(corpus)]
            found = mutated(base, seed, HEAD + HELPERS)
        else:
            found = mutated(generated(seed), seed, HEAD + HELPERS)
        if found is not None:
            yield found
