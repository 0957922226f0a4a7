"""Tests of the compiler."""
