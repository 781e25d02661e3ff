"""Sound inputs to start from, and Hypothesis strategies for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from wattkeeper_predictor import GpuSpec, ModelSpec, ServingConfig, Workload

GIB = 1024**3

LLAMA_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

LLAMA_8B = ModelSpec(
    id="example/llama-8b",
    model_type="llama",
    parameters_total_billion=8.03,
    parameters_active_billion=8.03,
    layers=32,
    hidden_size=4096,
    attention_heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate_size=14336,
    vocab_size=128256,
    max_context_tokens=131072,
)
L4 = GpuSpec(
    name="L4",
    memory_bytes=23034 * 1024**2,
    memory_bandwidth_gb_s=300.1,
    tdp_watts=72,
    fp16_dense_tflops=121,
    memory_nominal_gb=24,
    memory_type="GDDR6",
    compute_capability="8.9",
    base_clock_mhz=795,
    boost_clock_mhz=2040,
)
HIGH = Workload(requests_per_second=0.33)
SERVING = ServingConfig()


@st.composite
def model_specs(draw: st.DrawFn) -> ModelSpec:
    """Dense models from 0.1 to 200 billion parameters."""
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    heads = kv_heads * draw(st.sampled_from([1, 2, 4, 8]))
    parameters = draw(st.floats(0.1, 200))
    layers = draw(st.integers(1, 120))
    window = draw(st.none() | st.integers(16, 8192))
    return replace(
        LLAMA_8B,
        parameters_total_billion=parameters,
        parameters_active_billion=parameters,
        layers=layers,
        kv_heads=kv_heads,
        attention_heads=heads,
        hidden_size=heads * 128,
        intermediate_size=draw(st.integers(512, 50000)),
        vocab_size=draw(st.integers(1000, 300000)),
        sliding_window=window,
        sliding_layers=draw(st.integers(0, layers)) if window else 0,
        tie_word_embeddings=draw(st.booleans()),
        max_context_tokens=None,
    )


def gpu_specs() -> st.SearchStrategy[GpuSpec]:
    """NVIDIA GPUs between a T4 and a B300."""
    return st.builds(
        lambda memory, bandwidth, tdp: replace(
            L4, name="Test GPU", memory_bytes=memory * GIB, memory_bandwidth_gb_s=bandwidth, tdp_watts=tdp
        ),
        memory=st.integers(8, 288),
        bandwidth=st.floats(100, 9000),
        tdp=st.floats(30, 1500),
    )
