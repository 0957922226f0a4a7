"""The numbers by which our controller can be tuned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DefaultOptions:
    """Tuning of default_policy.py, where the words are explained; users need at most the first."""

    congestion_threshold: float = 0.05
    """Congestion, beyond the noise floor, that is tolerated before channels are added."""
    congestion_floor: float = 0.02
    """Congestion up to here is noise."""
    congestion_strong: float = 0.2
    """Congestion from here on needs no second period as confirmation."""
    saturated_share: float = 0.9
    """A region busy for less than this is not what its tuples wait for."""
    doubtful_share: float = 0.75
    """A region busy for at least this may be; more channels are tried, and kept if the throughput grows."""
    expand_utilisation: float = 0.8
    """Utilisation the way up aims at."""
    contract_utilisation: float = 0.75
    """Utilisation the way down aims at."""
    finish_utilisation: float = 0.82
    """A climb that ends above this utilisation is not finished."""
    finish_periods: int = 2
    """Periods after a climb over which is averaged, where measurements are noisy, whether it is finished."""
    load_fall_share: float = 0.8
    """Channels that were added for a load are not given back while it is above this share of it."""
    patience: int = 4
    """Periods that must all agree before channels are given back."""
    gain_min: float = 0.05
    """Capacity a doubling of the channels must add, as a share."""
    gain_periods: int = 2
    """Periods, where measurements are noisy, that must agree that more channels do not pay."""
    drain_periods: int = 12
    """How long a shrinking backlog is left to shrink before channels are added nevertheless."""
    ceiling_periods: int = 100
    """How long a size that did not pay is not tried again, the first time."""

    def __post_init__(self) -> None:
        if not 0 <= self.congestion_threshold < 1:
            raise ValueError(
                f"congestion_threshold must be in [0, 1), got {self.congestion_threshold}; 0.01-0.3 is good"
            )
        if not 0 < self.contract_utilisation <= self.expand_utilisation <= self.saturated_share <= 1:
            raise ValueError(
                "utilisations must satisfy 0 < contract <= expand <= saturated <= 1, got "
                f"{self.contract_utilisation}, {self.expand_utilisation}, {self.saturated_share}: otherwise "
                "every move up would be followed by a move down"
            )
        if self.patience < 1 or self.gain_periods < 1:
            raise ValueError("patience and gain_periods are numbers of periods, at least 1")
