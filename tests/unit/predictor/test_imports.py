"""Predicting is light: nothing that only training or plotting needs is imported."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
# xgboost imports scikit-learn where it is installed; the image has none.
sys.modules["sklearn"] = None
from wattkeeper_predictor import Predictor, Workload, memory_fit, ServingConfig
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
assert "xgboost" not in sys.modules, "importing the package must not load xgboost"
predictor = Predictor.load()
model = ModelCatalogue.load().get("Qwen/Qwen3-8B")
gpu = GpuCatalogue.load().get("L4")
work = Workload(requests_per_second=0.2)
assert memory_fit(model, gpu, ServingConfig(), work).fits
assert predictor.predict(model, gpu, work).power_watts > 0
heavy = {"pandas", "matplotlib", "scipy.stats", "typer", "wattkeeper_predictor.training", "wattkeeper"}
print(sorted(heavy & set(sys.modules)))
"""


def test_predicting_imports_neither_pandas_nor_training_code() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
