"""Measurements, side by side in one run: ``python -m benchmarks NAME [--quick] …``.

A benchmark is a module of this folder with a function ``main(arguments: list[str]) -> dict``: it parses what
follows its name on the command line, prints what a reader wants to see, and returns the figures.
``--quick`` ends within 3 minutes on 2 cores. A module whose name begins with ``_`` is a helper.
"""
