"""Measurements, side by side in one run: ``python -m benchmarks NAME [--quick | --mini] …``.

A benchmark is a module of this folder with a function ``main(arguments: list[str]) -> dict``: it parses what
follows its name on the command line, prints what a reader wants to see, and returns the figures.
``--quick`` ends within 5 minutes on 2 quiet cores: fewer rounds and smaller sizes, the same figures. ``--mini`` ends
within seconds: sizes at which numbers say nothing, for the test that every benchmark runs. A module whose name begins
with ``_`` is a helper. ``python -m benchmarks compare CHECKOUT NAME`` is for refactorings (see `_compare`).
"""
