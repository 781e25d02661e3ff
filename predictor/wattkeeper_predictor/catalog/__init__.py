"""What is known about GPUs and models, as data files with a source for each value."""

from __future__ import annotations

from .gpus import GpuCatalogue
from .labels import LabelMatch, MigProfile
from .models import ModelCatalogue

__all__ = ["GpuCatalogue", "LabelMatch", "MigProfile", "ModelCatalogue"]
