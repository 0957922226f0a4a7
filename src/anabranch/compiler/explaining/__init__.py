"""The layout, told: as text, JSON and drawings."""
