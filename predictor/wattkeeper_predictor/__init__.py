"""Predict the power and the inter-token latency of an LLM on a GPU, from public metadata."""

from __future__ import annotations

from .errors import (
    ArtifactError,
    InvalidInput,
    OutOfPredictorRange,
    PredictorError,
    UnknownGpu,
    UnknownModel,
)
from .memory import MemoryFit, memory_fit
from .prediction import Explanation, Prediction
from .predictor import Predictor
from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

__all__ = [
    "ArtifactError",
    "Explanation",
    "GpuSpec",
    "InvalidInput",
    "MemoryFit",
    "ModelSpec",
    "OutOfPredictorRange",
    "Prediction",
    "Predictor",
    "PredictorError",
    "ServingConfig",
    "UnknownGpu",
    "UnknownModel",
    "Workload",
    "memory_fit",
]
