"""The predictor: loading it, and 100 pools × 4 tensor parallel sizes × 3 weight formats in one call.

*Cold* is each question for the first time, *kept* through the cache at slightly other rates. Loading is
measured in a process of its own, with the memory that it ends up with.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

from tests.bench.timing import measure
from wattkeeper_predictor import Predictor, ServingConfig, Workload
from wattkeeper_predictor.cache import CachedPredictor
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.prediction import Query
from wattkeeper_predictor.predictor import default_artifacts, query_of

POOLS, SIZES, FORMATS = 100, (1, 2, 4, 8), ("none", "fp8", "int4")
_LOAD = """
import json, resource, sys, time
began = time.perf_counter()
# The image has no scikit-learn, which XGBoost imports where it is installed.
sys.modules["sklearn"] = None
from wattkeeper_predictor.predictor import Predictor, default_artifacts
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
predictor = Predictor.load(default_artifacts("wattkeeper"))
GpuCatalogue.load(), ModelCatalogue.load()
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - began, "resident_bytes": resident}))
"""


def benchmarks() -> dict[str, object]:
    """Seconds and bytes of each."""
    predictor = Predictor.load(default_artifacts("wattkeeper"))
    cached = CachedPredictor(predictor)
    rates = _rates()
    cold: list[Query] = []
    kept: list[Query] = []

    def new_question() -> None:
        cold[:] = _fleet(next(rates))

    def same_question() -> None:
        work = _work(0.5 - 1e-6 * next(counter))
        kept[:] = [replace(query, workload=work) for query in fleet]

    fleet = _fleet(0.5)
    counter = itertools.count()
    cached.predict_many(fleet)
    return {
        "load": _loaded(),
        "questions": len(fleet),
        "cold": measure(lambda: predictor.predict_many(cold), runs=100, before=new_question),
        "kept": measure(lambda: cached.predict_many(kept), runs=200, before=same_question),
    }


def _rates() -> Iterator[float]:
    for step in itertools.count():
        yield 0.1 + 0.01 * (step % 50)


def _work(rate: float) -> Workload:
    return Workload(requests_per_second=rate, prompt_tokens=512, output_tokens=256)


def _fleet(rate: float) -> list[Query]:
    catalogue = GpuCatalogue.load()
    usable = [
        gpu
        for gpu in map(catalogue.get, catalogue.names())
        if gpu.vendor == "NVIDIA" and (gpu.capability or (0, 0)) >= (8, 0)
    ]
    # Nodes differ in the memory that their drivers report.
    pools = [
        replace(gpu, memory_bytes=gpu.memory_bytes + number)
        for number, gpu in zip(range(POOLS), itertools.cycle(usable), strict=False)
    ]
    servings = [
        ServingConfig(tensor_parallel_size=size, quantization=name) for size in SIZES for name in FORMATS
    ]
    model = ModelCatalogue.load().get("meta-llama/Llama-3.1-8B-Instruct")
    work = _work(rate)
    return [query_of(model, pool, work, serving) for pool in pools for serving in servings]


def _loaded() -> object:
    done = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
