"""The public names, and nothing else."""

import importlib
import pkgutil
import subprocess
import sys
import types

import anabranch as ab
from anabranch import errors


def test_the_public_names_are_those_in_all():
    public = {name for name in vars(ab) if not name.startswith("_")}
    parts = {name for name in public - set(ab.__all__) if isinstance(getattr(ab, name), types.ModuleType)}
    assert public - parts == set(ab.__all__)
    ours = {module.name for module in pkgutil.iter_modules(ab.__path__)}
    assert parts <= ours, "a module that is neither public nor a part of the package"


def test_all_is_sorted_and_names_nothing_twice():
    assert sorted(set(ab.__all__)) == ab.__all__


def test_every_public_name_says_what_it_is():
    for name in ab.__all__:
        assert (getattr(ab, name).__doc__ or "").strip(), f"anabranch.{name} has no docstring"


def test_state_stays_a_function_whatever_is_imported():
    for module in pkgutil.iter_modules(importlib.import_module("anabranch.state").__path__):
        importlib.import_module(f"anabranch.state.{module.name}")
    assert isinstance(ab.state, types.FunctionType)


def test_state_is_a_function_even_if_a_module_of_the_subpackage_is_imported_first():
    code = "import anabranch.state.codec, anabranch as ab; assert callable(ab.state), ab.state"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={"PYTHONPATH": ":".join(sys.path)})


def test_importing_the_library_does_not_import_pyspark():
    code = "import sys, anabranch; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={"PYTHONPATH": ":".join(sys.path)})


def test_every_error_is_an_anabranch_error_and_crosses_to_the_driver():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    for kind in kinds:
        assert issubclass(kind, ab.AnabranchError)
        back = errors.error_from_json(errors.error_to_json(kind("what")))
        assert type(back) is kind and str(back) == "what"


def test_an_operator_error_keeps_its_fields_on_the_way_to_the_driver():
    error = errors.OperatorError("what", "sum (a.py:3)", "(x=1)", 7)
    back = errors.error_from_json(errors.error_to_json(error))
    assert (str(back), back.operator, back.row, back.epoch) == ("what", "sum (a.py:3)", "(x=1)", 7)


def test_a_worker_loads_neither_what_reads_code_nor_what_decides():
    """A new Python worker runs this before its first task, and a region that grows waits for it."""
    code = (
        "import anabranch.engine.worker.tasks, sys; "
        "print([m for m in sys.modules if m.startswith(('anabranch.compiler.reading', 'anabranch.compiler.models', "
        "'anabranch.compiler.explaining', 'anabranch.control', 'anabranch.engine.driver', 'anabranch.sim', "
        "'anabranch.papers', 'anabranch.spark', 'pandas', 'pyspark'))])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment, capture_output=True)
    assert done.stdout.strip() == b"[]"
