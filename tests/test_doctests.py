"""The examples in the documentation run and give what they show."""

import doctest
import importlib
import pkgutil

import pytest

import anabranch.api
import anabranch.operators

API = [
    f"{package.__name__}.{module.name}"
    for package in (anabranch.api, anabranch.operators)
    for module in pkgutil.iter_modules(package.__path__)
]
MODULES = [*API, "anabranch.testing", "anabranch.program.ddl", "anabranch.program.hashing", "anabranch.state.maps"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_show(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_run():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 5
