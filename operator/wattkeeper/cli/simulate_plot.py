"""Simulations as figures: power over time, and what is saved for how many cold starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from wattkeeper.sim.outcome import Outcome

#: Fixed timeouts along the curve, in seconds.
PARETO_SECONDS = (0.0, 15.0, 30.0, 60.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0)
_MOST_POINTS = 1500


def save_plot(outcomes: Sequence[Outcome], along: Sequence[Outcome], target: Path) -> None:
    """One panel each; `along` are fixed timeouts, from the shortest. The format follows the file's ending."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    power, pareto = figure.subplots(1, 2)
    for outcome in outcomes:
        if outcome.profile is None:
            continue
        watts, step = outcome.profile.watts, outcome.profile.step_seconds
        fold = max(1, -(-len(watts) // _MOST_POINTS))
        whole = len(watts) // fold * fold
        hours = np.arange(whole // fold) * fold * step / 3600
        mean = watts[:whole].reshape(-1, fold).mean(axis=1)
        power.step(hours, mean, where="post", linewidth=0.9, label=outcome.policy)
    always_on = outcomes[0].always_on_wh * 3600 / outcomes[0].horizon_seconds
    power.axhline(always_on, linestyle="--", color="gray", label="always on")
    power.set_xlabel("time (h)")
    power.set_ylabel(f"GPU power (W), accounting {outcomes[0].accounting.value.lower()}")
    power.set_ylim(bottom=0)
    power.legend(fontsize=8, loc="best")

    pareto.plot(
        [each.ledger.cold_starts for each in along],
        [each.saved_percent for each in along],
        ".-",
        color="gray",
        linewidth=0.9,
        label="fixed timeouts",
    )
    for outcome in outcomes:
        pareto.plot([outcome.ledger.cold_starts], [outcome.saved_percent], "o", label=outcome.policy)
    pareto.set_xlabel("cold starts")
    pareto.set_ylabel("saved against always on (%)")
    pareto.legend(fontsize=8, loc="best")
    figure.suptitle(f"{outcomes[0].name} on {outcomes[0].gpu}", fontsize=11)
    figure.savefig(target)
