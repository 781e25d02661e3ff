"""The model card of the recipe ``wattkeeper``, made from a manifest, so that no figure is copied by hand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from wattkeeper_predictor.conformal import LEAST_CONFIDENCE_PERCENT

_PROTOCOLS = {"cv": "rows (5-fold)", "logo": "a GPU", "lolo": "an LLM", "both": "a GPU and LLMs"}
_PAPER = {"logo": ("8.5", "24.9", "13.5", "3.4"), "lolo": ("5.6", "15.6", "6.7", "2.0")}
_COLUMNS = (("itl", "server"), ("itl", "offline"), ("power", "server"), ("power", "offline"))
_KINDS = ("dense", "mixture", "hybrid", "fp8", "four_bit", "one_gpu", "several_gpus")
_SWEEP_TARGETS = {"itl": "ITL, median", "itl_p95": "ITL, 95th percentile", "power": "power a GPU"}
_AT = 90 - LEAST_CONFIDENCE_PERCENT


def wattkeeper_card_text(manifest: Mapping[str, Any]) -> str:
    """Markdown, from ``model_card_wattkeeper.md.in`` and the manifest's figures."""
    text = resources.files(__package__).joinpath("model_card_wattkeeper.md.in").read_text(encoding="utf-8")
    data, scores, idle = manifest["data"], manifest["scores"], manifest["idle"]
    return Template(text).substitute(
        runs=data["runs"],
        sweeps=data["sweep_rows"],
        models=data["models"],
        gpus=data["gpus"],
        sha256=data["sha256"][:16],
        xgboost=manifest["xgboost"],
        notes="\n".join(f"* {note}" for note in data["notes"]),
        scores="\n".join(_score_rows(scores)),
        sweep_scores="\n".join(_sweep_rows(scores.get("lomo", {}).get("length", {}).get("mlenergy", {}))),
        mixture_scores=_mixtures(scores.get("lolo", {}).get("length", {}).get("mixtures", {})),
        decisions="\n".join(_decision_rows(scores.get("lolo", {}).get("length", {}).get("decisions", {}))),
        intervals="\n".join(_interval_rows(manifest["intervals"])),
        trees="\n".join(_tree_line(name, entry) for name, entry in manifest["trees"].items()),
        parameters="\n".join(
            _line([name.replace("_", " "), f"{value:.3g}", f"{manifest['offline'][name]:.3g}"])
            for name, value in manifest["online"].items()
        ),
        power=", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in manifest["power"].items()),
        idle_offset=f"{idle['offset']:.2f}",
        idle_clock=f"{idle['clock_exponent']:.2f}",
        idle_tdp=f"{idle['tdp_exponent']:.2f}",
    )


def _score_rows(scores: Mapping[str, Any]) -> list[str]:
    rows = []
    for protocol, shown in _PROTOCOLS.items():
        for known, result in scores.get(protocol, {}).items():
            figures = [_mdape(result, target, scenario) for target, scenario in _COLUMNS]
            taus = [_tau(result, target) for target in ("itl", "power")]
            rows.append(_line([shown, known, *figures, *taus]))
        if protocol in _PAPER and protocol in scores:
            rows.append(_line([shown, "*the paper*", *_PAPER[protocol], "", ""]))
    return rows


def _mdape(result: Mapping[str, Any], target: str, scenario: str) -> str:
    row = (result[target] or {}).get(scenario)
    return f"{row['mdape_percent']:.1f}" if row else "–"


def _tau(result: Mapping[str, Any], target: str) -> str:
    row = (result[target] or {}).get("server")
    return f"{row['kendall_tau_gpu']:.2f}" if row and row["kendall_tau_gpu"] is not None else "–"


def _sweep_rows(swept: Mapping[str, Any]) -> list[str]:
    rows = []
    for target, shown in _SWEEP_TARGETS.items():
        if target in swept:
            kinds = [swept[target]["by_kind"].get(kind) for kind in _KINDS]
            cells = ["–" if value is None else f"{value:.1f}" for value in kinds]
            rows.append(_line([shown, f"{swept[target]['mdape_percent']:.1f}", *cells]))
    return rows


def _mixtures(mixtures: Mapping[str, Any]) -> str:
    if not mixtures:
        return "none"
    parts = [
        f"{'ITL' if target == 'itl' else target} {scenario} {row['mdape_percent']:.1f} %"
        for target, by_scenario in mixtures.items()
        for scenario, row in (by_scenario or {}).items()
    ]
    return ", ".join(parts) + "."


def _decision_rows(decisions: Mapping[str, Any]) -> list[str]:
    rows = []
    for bounds, policies in decisions.items():
        for policy, row in policies.items():
            if policy != "cases":
                figures = ["–" if value is None else f"{value:.1f}" for value in row.values()]
                rows.append(_line([f"{bounds.split('_')[0]} ({policies['cases']})", policy, *figures]))
    return rows


def _interval_rows(tables: Mapping[str, Any]) -> list[str]:
    rows = []
    for table, targets in tables.items():
        for target, entry in targets.items():
            held = entry["coverage_90_percent"]
            covered = [
                "–" if held[mean] is None else f"{held[mean]:.0f}, {held[worst]:.0f}"
                for mean, worst in (("mean", "worst_group"), ("two_sided_mean", "two_sided_worst_group"))
            ]
            factors = [f"{entry[side][_AT]:.2f}" for side in ("upper", "lower")]
            rows.append(_line([table, target.replace("_", " "), str(entry["groups"]), *factors, *covered]))
    return rows


def _tree_line(name: str, entry: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{feature['name']} [{feature['unit']}]" for feature in entry["features"])
    settings = ", ".join(f"{key} {value:g}" for key, value in entry["settings"].items())
    rising = f"; never falls in {', '.join(entry['never_falls_in'])}" if entry["never_falls_in"] else ""
    return f"* **{name}** ({entry['trees']} trees, {entry['objective']}, {settings}{rising}): {listed}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
