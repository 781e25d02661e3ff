"""The dose-response as a figure: idle power over allocated memory, with the bare board beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from wattkeeper.core.dose_response import DoseResponse, ModelIdle


def save_plot(
    doses: Sequence[tuple[str, DoseResponse]], models: Sequence[tuple[str, ModelIdle]], target: Path
) -> None:
    """One panel a board. The format follows the file's ending."""
    figure = Figure(figsize=(5 * len(doses), 4.2), layout="constrained")
    panels = figure.subplots(1, len(doses), squeeze=False)[0]
    for axes, (gpu, study) in zip(panels, doses, strict=True):
        sizes = [level.gigabytes or 0.0 for level in study.levels]
        watts = [level.mean_watts for level in study.levels]
        spread = [level.deviation_watts for level in study.levels]
        axes.errorbar(sizes, watts, yerr=spread, fmt="o-", capsize=3, label="idle with a context")
        axes.axhline(study.bare.mean_watts, linestyle="--", color="gray", label="bare")
        if study.tdp_watts:
            axes.axhline(0.2 * study.tdp_watts, linestyle=":", color="tab:red", label="20 % of TDP")
        for name, model in models:
            if name == gpu:
                axes.plot([model.idle.gigabytes], [model.idle.mean_watts], "s", label=model.model)
        clocks = (study.bare.sm_clock_mhz, study.levels[0].sm_clock_mhz)
        shown = f", SM {clocks[0]:.0f} → {clocks[1]:.0f} MHz" if None not in clocks else ""
        axes.set_title(f"{gpu}\n+{study.step_watts:.1f} W{shown}", fontsize=10)
        axes.set_xlabel("allocated memory (GB)")
        axes.set_ylabel("board power (W)")
        axes.set_ylim(0, 1.15 * max(*watts, 0.2 * (study.tdp_watts or 0.0)))
        axes.legend(fontsize=8, loc="lower right")
    figure.savefig(target)
