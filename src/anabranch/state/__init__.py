"""Managed state: codec, segments, manifests, the checkpoint."""
