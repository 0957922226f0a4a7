"""Regions as pipes: what controllers are developed on, and measured by."""
