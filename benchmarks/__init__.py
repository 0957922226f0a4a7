"""Benchmarks: each module has ``main(arguments) -> dict`` and is run as ``python -m benchmarks NAME``."""
