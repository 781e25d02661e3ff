"""Made-up measured rows: what the simulator says of real models and GPUs, with a little noise."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tests.unit.predictor.test_engine_step import PRIOR
from wattkeeper_predictor import ServingConfig, Workload
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.engine.batch import steady
from wattkeeper_predictor.engine.columns import Question, columns_of

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "microsoft/phi-2",
    "01-ai/Yi-1.5-6B-Chat",
)
GPUS = {"NVIDIA A30": "A30", "NVIDIA L4": "L4", "NVIDIA H100 NVL": "H100 NVL"}
SWEPT = {
    "Qwen/Qwen3-8B": ("8.19", "8.19", "bfloat16", "1"),
    "google/gemma-3-12b-it": ("11.8", "11.8", "bfloat16", "1"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ("30.5", "3.3", "bfloat16", "2"),
    "openai/gpt-oss-20b": ("21", "4", "mxfp4", "1"),
    "nobody/Unheard-Of-14B-FP8": ("14", "14", "fp8", "2"),
}


def write_runs(path: Path) -> Path:
    """Watt Counts' summary format: three runs a cell."""
    noise = np.random.default_rng(1)
    header = "model gpu_type lambda_qps prompt_tokens generation_tokens requests power_w e2e_s tokens_per_s"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        for model in MODELS:
            for label, gpu in GPUS.items():
                for rate in (-1.0, 0.017, 0.33):
                    for _ in range(3):
                        writer.writerow(_run(model, label, gpu, rate, noise))
    return path


def _run(model: str, label: str, gpu: str, rate: float, noise: np.random.Generator) -> list[object]:
    tokens = 150 + 10 * noise.random()
    work = Workload(
        scenario="Offline" if rate < 0 else "Server",
        requests_per_second=None if rate < 0 else rate,
        prompt_tokens=15,
        output_tokens=150,
    )
    spec = GpuCatalogue.load().get(gpu)
    columns = columns_of([Question(ModelCatalogue.load().get(model), spec, ServingConfig(), work)])
    state = steady(PRIOR, columns)
    slower = 1 + 0.01 * noise.standard_normal()
    share = 0.95 if rate < 0 else 0.2 + 0.6 * (1 - np.exp(-state.demand[0]))
    per_second = 1 / state.inverse_throughput[0] / slower
    stay = state.per_token[0] * tokens * slower
    watts = spec.tdp_watts * share * slower
    return [model, label, rate, 15, tokens, 1000 if rate < 0 else 97, watts, stay, per_second]


def write_sweep(path: Path) -> Path:
    """ML.ENERGY's columns: each model at five batch sizes."""
    header = (
        "task model_id weight_precision total_params_billions activated_params_billions gpu_model num_gpus "
        "expert_parallel avg_batch_size avg_output_len avg_power_watts median_itl_ms p95_itl_ms"
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        for model, (total, active, precision, gpus) in SWEPT.items():
            for batch in (8, 16, 32, 64, 128):
                itl = 5 + float(total) / 2 + batch / 10
                watts = float(gpus) * (300 + 50 * np.log2(batch / 8))
                sizes = [model, precision, total, active, "H100", gpus, "1"]
                writer.writerow(["lm-arena-chat", *sizes, batch, 500, watts, itl, 1.1 * itl])
    return path
