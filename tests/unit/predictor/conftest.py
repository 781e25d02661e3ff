"""Loaded once for all predictor tests: the shipped artifacts and catalogues."""

from __future__ import annotations

import pytest

from wattkeeper_predictor import Predictor
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    return Predictor.load()


@pytest.fixture(scope="session")
def gpus() -> GpuCatalogue:
    return GpuCatalogue.load()


@pytest.fixture(scope="session")
def models() -> ModelCatalogue:
    return ModelCatalogue.load()
