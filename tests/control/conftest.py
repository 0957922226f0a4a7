"""Lets the tests of this folder share epoch_world.py without making the folder a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
