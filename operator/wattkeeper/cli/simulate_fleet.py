"""A fleet file for `wattkeeper simulate`: pools of GPUs, and models with their requests.

```yaml
pools:
- name: h100
  gpu: H100
  modelsPerGpu: 4          # models without `gpus` are packed in their order
models:
- name: chat
  pool: h100
  weightsGB: 15.2
  trace: chat.csv          # beside this file, or
  generate: poisson:per-hour=5
  copies: 8
```
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from wattkeeper.cli.manifest_files import InputError, read_documents
from wattkeeper.cli.simulate_input import Board, Requests, generated, read_trace
from wattkeeper.sim.arrivals import Trace, TraceError
from wattkeeper.sim.hardware import SEED_WEIGHT_BYTES, Hardware
from wattkeeper.sim.residents import SharedModel

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=253)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=False)


class Pool(_Part):
    """GPUs of one kind."""

    name: Name
    gpu: Name
    models_per_gpu: Annotated[int, Field(ge=1, le=1000)] = 1
    tdp_watts: Positive | None = None
    bare_watts: Positive | None = None
    context_watts: Positive | None = None
    load_watts: Positive | None = None
    host_watts: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class Model(_Part):
    """A model, or several alike."""

    name: Name
    pool: Name
    trace: str | None = None
    generate: str | None = None
    copies: Annotated[int, Field(ge=1, le=100_000)] = 1
    gpus: Annotated[list[Name], Field(min_length=1)] | None = None
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    weights_gb: Annotated[Positive, Field(alias="weightsGB")] = SEED_WEIGHT_BYTES / 1e9
    loader: Literal["standard", "fast"] = "standard"
    load_seconds: Positive | None = None
    load_joules: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.trace is None) == (self.generate is None):
            raise ValueError("give either trace or generate")
        if self.trace is not None and self.copies > 1:
            raise ValueError("copies need generate: copies of one trace would be alike")
        if self.gpus is not None and len(self.gpus) != self.tensor_parallel:
            raise ValueError(
                f"gpus names {len(self.gpus)} GPUs, tensorParallel is {self.tensor_parallel}: make them agree"
            )
        return self


class Fleet(_Part):
    """The file."""

    pools: Annotated[list[Pool], Field(min_length=1)]
    models: Annotated[list[Model], Field(min_length=1)]


def read_fleet(path: Path, requests: Requests) -> tuple[list[SharedModel], list[str]]:
    """The models of a fleet file, and what to know of them. Raises InputError."""
    fleet = _parsed(path)
    pools = {pool.name: pool for pool in fleet.pools}
    if len(pools) < len(fleet.pools):
        raise InputError(f"{path}: pools: two have one name: give each its own")
    models: list[SharedModel] = []
    notes: list[str] = []
    packed: dict[tuple[str, int], int] = {}
    for number, model in enumerate(fleet.models):
        where = f"{path}: models.{number} ({model.name})"
        pool = pools.get(model.pool)
        if pool is None:
            raise InputError(
                f"{where}: pool: there is none named {model.pool}: choose from {', '.join(pools)}"
            )
        replica = _replica(pool, model, where)
        for trace in _traces(path, model, requests, number, notes):
            gpus = tuple(f"{pool.name}/{gpu}" for gpu in model.gpus) if model.gpus else None
            if gpus is None:
                place = packed.get((pool.name, replica.gpus), 0)
                packed[pool.name, replica.gpus] = place + 1
                board = f"{pool.name}/{replica.gpus}x{place // pool.models_per_gpu}"
                gpus = tuple(f"{board}-{i}" for i in range(replica.gpus))
            models.append(SharedModel(trace.name, trace, replica, gpus))
    if len({model.name for model in models}) < len(models):
        raise InputError(f"{path}: models: two have one name: give each its own")
    return models, notes


def _parsed(path: Path) -> Fleet:
    documents = [document for document in read_documents(str(path)) if document is not None]
    if len(documents) != 1:
        raise InputError(f"{path}: has {len(documents)} documents: write one, with pools and models")
    try:
        return Fleet.model_validate(documents[0])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: {place}: {message}{more}") from None


def _replica(pool: Pool, model: Model, where: str) -> Hardware:
    names = ("tdp_watts", "bare_watts", "context_watts", "load_watts")
    board = Board(pool.gpu, {name: getattr(pool, name) for name in names})
    return board.with_model(
        where,
        gpus=model.tensor_parallel,
        weight_bytes=model.weights_gb * 1e9,
        loader=model.loader,
        load_seconds=model.load_seconds,
        marginal_load_joules=model.load_joules,
        host_watts=pool.host_watts,
    )


def _traces(path: Path, model: Model, requests: Requests, number: int, notes: list[str]) -> Iterator[Trace]:

    if model.generate is not None:
        copies = replace(requests, copies=model.copies)
        yield from generated(model.generate, copies, number, model.name)
        return
    try:
        found, said = read_trace(path.parent / (model.trace or ""), requests)
    except TraceError as error:
        raise InputError(str(error)) from None
    if len(found) > 1:
        named = ", ".join(trace.name for trace in found)
        raise InputError(
            f"{path}: models.{number} ({model.name}): trace: has several models ({named}): "
            "name one with --log-model"
        )
    notes.extend(said)
    yield replace(found[0], name=model.name)
