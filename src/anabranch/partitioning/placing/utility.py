"""The paper's five ways to weigh the balance penalty ρ against the migration penalty γ; lower is better."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

Penalties = NDArray[np.float64]


class Utility(Enum):
    """A = balance alone; P or T = plus or times; M = migration; LM = its logarithm."""

    A = "A"
    APM = "APM"
    APLM = "APLM"
    ATM = "ATM"
    ATLM = "ATLM"

    def of(self, balance: Penalties | float, migration: Penalties | float) -> Penalties:
        """U(ρ, γ), elementwise."""
        rho, gamma = np.asarray(balance, dtype=np.float64), np.asarray(migration, dtype=np.float64)
        if self is Utility.A:
            return rho + 0 * gamma
        if self is Utility.APM:
            return rho + gamma
        if self is Utility.APLM:
            return rho + np.log1p(gamma)
        if self is Utility.ATM:
            return rho * (1 + gamma)
        return rho * (1 + np.log1p(gamma))
