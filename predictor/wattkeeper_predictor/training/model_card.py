"""docs/model-card.md, made from a manifest, so that no figure is copied by hand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from wattkeeper_predictor.conformal import LEAST_CONFIDENCE_PERCENT, factor_at

from .model_card_wattkeeper import wattkeeper_card_text

_PROTOCOLS = {"cv": "rows (5-fold)", "logo": "a GPU", "lolo": "an LLM"}
_TARGETS = {"power": "power", "itl": "ITL"}
# The paper's MdAPE in per cent.
_PAPER = {
    "logo": {"power": {"offline": "3.4", "server": "13.5"}, "itl": {"offline": "24.9", "server": "8.5"}},
    "lolo": {"power": {"offline": "2.0", "server": "6.7"}, "itl": {"offline": "15.6", "server": "5.6"}},
}
_REGIMES = {
    "measured": "Measured: this model on this GPU",
    "unseen_model": "UnseenModel: GPU measured with other models",
    "unseen_gpu": "UnseenGpu: model measured on other GPUs",
    "unseen_both": "UnseenGpu: neither measured",
}
_SHOWN_PERCENT = 90


def model_card_text(manifest: Mapping[str, Any]) -> str:
    """Markdown, from the recipe's template and the manifest's figures."""
    if manifest["recipe"] == "wattkeeper":
        return wattkeeper_card_text(manifest)
    template = Template(resources.files(__package__).joinpath("model_card.md.in").read_text(encoding="utf-8"))
    data = manifest["data"]
    return template.substitute(
        recipe=manifest["recipe"],
        runs=data["runs"],
        models=data["models"],
        gpus=data["gpus"],
        sha256=data["sha256"][:16],
        xgboost=manifest["xgboost"],
        left_out="\n".join(f"* {name}: {reason}" for name, reason in data["left_out"].items()),
        features="\n".join(_feature_line(name, target) for name, target in manifest["targets"].items()),
        scores="\n".join(_score_rows(manifest["scores"])),
        baselines="\n".join(_baseline_rows(manifest["scores"]["logo"]["baselines"])),
        bounds="\n".join(_bound_rows(manifest["intervals"])),
        most_running=f"{manifest['most_running']:.1f}",
        growth=f"{100 * (factor_at(manifest['itl_growth_per_sequence'], _SHOWN_PERCENT) - 1):.1f}",
    )


def _feature_line(name: str, target: Mapping[str, Any]) -> str:
    settings = target["settings"]
    listed = ", ".join(f"{feature['name']} [{feature['unit']}]" for feature in target["features"])
    shape = f"depth {settings['max_depth']}, {settings['trees']} trees, λ {settings['reg_lambda']:g}"
    return f"* **{name}** ({target['meaning']}; {shape}): {listed}"


def _score_rows(scores: Mapping[str, Any]) -> list[str]:
    rows = []
    for protocol, result in scores.items():
        for target, shown in _TARGETS.items():
            for scenario, row in result[target].items():
                paper = _PAPER[protocol][target][scenario] if protocol in _PAPER else ""
                cells = [_PROTOCOLS[protocol], shown, scenario, f"{row['mdape_percent']:.1f}", paper]
                rows.append(_line([*cells, *_rest(row, target)]))
    return rows


def _baseline_rows(baselines: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, result in baselines.items():
        for target, shown in _TARGETS.items():
            for scenario, row in (result[target] or {}).items():
                rows.append(
                    _line([name, shown, scenario, f"{row['mdape_percent']:.1f}", *_rest(row, target)])
                )
    return rows


def _bound_rows(intervals: Mapping[str, Any]) -> list[str]:
    rows = []
    for regime, table in intervals.items():
        for level, factors in table["factors"].items():
            coverage = table["coverage_90_percent"][level]
            at_ninety = [f"{factors[t][_SHOWN_PERCENT - LEAST_CONFIDENCE_PERCENT]:.2f}" for t in _TARGETS]
            covered = [f"{coverage[t]['mean']:.0f}, {coverage[t]['worst_group']:.0f}" for t in _TARGETS]
            rows.append(_line([_REGIMES[regime], level, *at_ninety, *covered]))
    return rows


def _rest(row: Mapping[str, Any], target: str) -> list[str]:
    rmse = f"{row['rmse']:.1f}" if target == "power" else f"{row['rmse'] * 1e3:.2f}"
    taus = (row["kendall_tau_llm"], row["kendall_tau_gpu"])
    return [rmse, *("–" if tau is None else f"{tau:.2f}" for tau in taus), str(row["n"])]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
