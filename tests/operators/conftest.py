"""What operators count in these tests is counted here, and not lost."""

import pytest

from anabranch.operators.epoch_context import EpochContext, running


@pytest.fixture(autouse=True, scope="module")
def counting():
    """An epoch around everything: what runs on one thread within counts its anomalies there."""
    with running(EpochContext()) as context:
        yield context
