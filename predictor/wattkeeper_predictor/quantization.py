"""Weight formats: how many bits a weight takes, and which GPUs have kernels for it.

Widths are the formats' own definitions (scales included): AWQ and GPTQ with groups of 128 keep a
16-bit scale and a 4-bit zero point a group; MXFP4 an 8-bit scale per 32 weights, NVFP4 per 16.
Minimum compute capabilities are vLLM's (documentation, "Quantization: supported hardware"; weight-only
Marlin kernels carry fp8 and the 4-bit floats on 8.0 and up). Embeddings, output head and norms stay
at 16 bits in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import InvalidInput
from .specs import GpuSpec, ModelSpec, ServingConfig

UNQUANTIZED = "none"
_SIXTEEN_BITS = 16.0


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Bits a quantized weight takes and the lowest compute capability that runs it."""

    bits_per_weight: float
    least_capability: tuple[int, int]


WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    "fp8": WeightFormat(8.0, (8, 0)),
    "int8": WeightFormat(8.0, (7, 5)),
    # Of either kind, where nobody says whose: what both take, on what runs both.
    "int4": WeightFormat(4 + (16 + 4) / 128, (7, 5)),
    "awq": WeightFormat(4 + (16 + 4) / 128, (7, 5)),
    "gptq": WeightFormat(4 + (16 + 4) / 128, (7, 0)),
    "mxfp4": WeightFormat(4 + 8 / 32, (8, 0)),
    "nvfp4": WeightFormat(4 + 8 / 16, (8, 0)),
}
QUANTIZATIONS: tuple[str, ...] = (UNQUANTIZED, *WEIGHT_FORMATS)


def effective_quantization(model: ModelSpec, serving: ServingConfig) -> str:
    """The format the weights are really in: the one asked for, else the checkpoint's own.

    Raises ``InvalidInput`` for a name that isn't in ``QUANTIZATIONS``.
    """
    asked = serving.quantization
    if asked not in QUANTIZATIONS:
        raise InvalidInput(
            "serving.quantization", f"{asked!r} isn't a known format; choose from {', '.join(QUANTIZATIONS)}"
        )
    if asked != UNQUANTIZED:
        return asked
    return model.native_quantization or UNQUANTIZED


def check_gpu_runs(quantization: str, gpu: GpuSpec) -> None:
    """Raise ``InvalidInput`` if the GPU has no kernel for the format; an unknown capability passes."""
    if quantization == UNQUANTIZED or gpu.capability is None:
        return
    least = WEIGHT_FORMATS[quantization].least_capability
    if gpu.capability < least:
        raise InvalidInput(
            "serving.quantization",
            f"{gpu.name} (compute capability {gpu.compute_capability}) has no {quantization}, which needs "
            f"{least[0]}.{least[1]}; choose another format or exclude this GPU",
        )


def weight_bytes(model: ModelSpec, quantization: str) -> int:
    """Bytes all weights take on the GPUs together."""
    total = model.parameters_total_billion * 1e9
    tower = model.tower_parameters_billion * 1e9 * _SIXTEEN_BITS / 8
    if quantization == UNQUANTIZED:
        # vLLM loads 32-bit checkpoints as 16-bit ones (dtype "auto").
        return round(total * _SIXTEEN_BITS / 8 + tower)
    tables = 1 if model.tie_word_embeddings else 2
    embeddings = min(total, float(tables * model.vocab_size * model.hidden_size))
    bits = WEIGHT_FORMATS[quantization].bits_per_weight
    return round(((total - embeddings) * bits + embeddings * _SIXTEEN_BITS) / 8 + tower)
