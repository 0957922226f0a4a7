"""Random worlds."""
