"""Weight formats: widths, kernels, and the refusal of what a GPU lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.predictor.samples import L4, LLAMA_8B
from wattkeeper_predictor import InvalidInput, ServingConfig
from wattkeeper_predictor.quantization import (
    QUANTIZATIONS,
    check_gpu_runs,
    effective_quantization,
    weight_bytes,
)


def test_narrower_formats_take_less() -> None:
    sizes = {name: weight_bytes(LLAMA_8B, name) for name in QUANTIZATIONS}
    assert sizes["none"] > sizes["fp8"] == sizes["int8"] > sizes["nvfp4"] > sizes["mxfp4"] > sizes["awq"]
    embeddings = 2 * 128256 * 4096
    assert sizes["fp8"] == 8_030_000_000 - embeddings + 2 * embeddings


def test_the_checkpoints_format_holds_unless_another_is_asked_for() -> None:
    native = replace(LLAMA_8B, native_quantization="fp8")
    assert effective_quantization(native, ServingConfig()) == "fp8"
    assert effective_quantization(native, ServingConfig(quantization="awq")) == "awq"
    assert effective_quantization(LLAMA_8B, ServingConfig()) == "none"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="mxfp4"):
        effective_quantization(LLAMA_8B, ServingConfig(quantization="int3"))


@pytest.mark.parametrize(
    ("capability", "quantization", "runs"),
    [
        ("7.0", "fp8", False),
        ("7.0", "gptq", True),
        ("7.0", "awq", False),
        ("7.5", "awq", True),
        ("8.0", "fp8", True),
        ("7.0", "none", True),
        (None, "fp8", True),
    ],
)
def test_what_a_gpu_runs(capability: str | None, quantization: str, runs: bool) -> None:
    gpu = replace(L4, name="V100 SXM2 32GB", compute_capability=capability)
    if runs:
        check_gpu_runs(quantization, gpu)
        return
    with pytest.raises(InvalidInput, match="V100") as refused:
        check_gpu_runs(quantization, gpu)
    assert refused.value.field == "serving.quantization"
