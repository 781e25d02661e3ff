"""Loaded once for all predictor tests: the shipped artifacts and catalogues."""

from __future__ import annotations

import pytest

from wattkeeper_predictor import Predictor
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.predictor import default_artifacts


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    """The paper's recipe."""
    return Predictor.load(default_artifacts("wattgpu"))


@pytest.fixture(scope="session")
def gpus() -> GpuCatalogue:
    return GpuCatalogue.load()


@pytest.fixture(scope="session")
def models() -> ModelCatalogue:
    return ModelCatalogue.load()
