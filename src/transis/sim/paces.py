"""How long an engine takes for what it does, by its own timeouts: what faults, budgets and stories are scaled by."""

from __future__ import annotations

from transis.types.config import Config


def gathering_us(config: Config) -> int:
    """How long strangers are waited for before a membership is proposed."""
    return config.timing.gather_min_us if config.engine == "totem" else config.pulse.alpha_us


def agreement_us(config: Config) -> int:
    """How long agreement on a membership may take before somebody is left out."""
    return config.timing.consensus_us if config.engine == "totem" else config.pulse.agree_us
