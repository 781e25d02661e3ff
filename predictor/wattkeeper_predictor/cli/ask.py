"""``predict`` and ``explain``: one model on one or more GPUs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.errors import InvalidInput, OutOfPredictorRange
from wattkeeper_predictor.hf_config import model_from_config
from wattkeeper_predictor.memory import MemoryFit, memory_fit
from wattkeeper_predictor.observation import Observed
from wattkeeper_predictor.prediction import Explanation, Prediction
from wattkeeper_predictor.predictor import Predictor, default_artifacts
from wattkeeper_predictor.quantization import QUANTIZATIONS, UNQUANTIZED
from wattkeeper_predictor.specs import GpuSpec, ModelSpec, ServingConfig, Workload

from .options import RecipeName


class ScenarioName(StrEnum):
    """The two scenarios."""

    SERVER = "Server"
    OFFLINE = "Offline"


ModelOption = Annotated[str, typer.Option("--model", help="Hugging Face id.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="config.json, if the model isn't catalogued.", dir_okay=False),
]
GpuOption = Annotated[list[str], typer.Option("--gpu", help="GPU by any of its names; may be repeated.")]
ScenarioOption = Annotated[ScenarioName, typer.Option(help="Requests as they come, or a full queue.")]
RateOption = Annotated[
    float | None, typer.Option("--requests-per-second", help="Mean arrival rate at one replica (Server).")
]
PromptOption = Annotated[int, typer.Option("--prompt-tokens", help="Mean prompt tokens a request.")]
OutputOption = Annotated[int, typer.Option("--output-tokens", help="Mean generated tokens a request.")]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="Confidence of the bounds, per cent.")]
ArtifactsOption = Annotated[
    Path | None, typer.Option("--artifacts", help="Directory of trained artifacts, instead of the package's.")
]
ShippedOption = Annotated[
    RecipeName | None, typer.Option("--recipe", help="Which of the package's artifacts, else the default.")
]
FormatOption = Annotated[
    str, typer.Option("--quantization", help=f"Weights' format: {', '.join(QUANTIZATIONS)}.")
]
ParallelOption = Annotated[int, typer.Option("--tensor-parallel", help="GPUs a replica.")]
ExpertsOption = Annotated[
    bool, typer.Option("--expert-parallel", help="Whole experts of a mixture on each GPU.")
]
SequencesOption = Annotated[
    int | None, typer.Option("--max-sequences", help="The engine's limit, else vLLM's default.")
]
IdleOption = Annotated[
    float | None, typer.Option("--idle-watts", help="Read by telemetry: one GPU, model resident, no request.")
]
ActiveOption = Annotated[
    float | None, typer.Option("--active-watts", help="Read by telemetry: one GPU while requests run.")
]
DutyOption = Annotated[
    float | None, typer.Option("--duty", help="Read by telemetry: mean requests in the system.")
]
LatencyOption = Annotated[
    float | None, typer.Option("--itl-ms", help="Read by telemetry: mean milliseconds between tokens.")
]
SamplesOption = Annotated[int, typer.Option("--samples", help="How many readings those are the means of.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def predict(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    model: ModelOption,
    gpu: GpuOption,
    requests_per_second: RateOption = None,
    scenario: ScenarioOption = ScenarioName.SERVER,
    prompt_tokens: PromptOption = 256,
    output_tokens: OutputOption = 256,
    quantization: FormatOption = UNQUANTIZED,
    tensor_parallel: ParallelOption = 1,
    expert_parallel: ExpertsOption = False,
    max_sequences: SequencesOption = None,
    confidence: ConfidenceOption = 90,
    config: ConfigOption = None,
    idle_watts: IdleOption = None,
    active_watts: ActiveOption = None,
    duty: DutyOption = None,
    itl_ms: LatencyOption = None,
    samples: SamplesOption = 1,
    recipe: ShippedOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Power, latency and memory of a model on each GPU, with upper bounds.

    A GPU of which the recipe can't speak is listed with the reason; with a single GPU that is an error.
    """
    spec = _model(model, config)
    workload = _workload(scenario, requests_per_second, prompt_tokens, output_tokens)
    serving = _serving(quantization, tensor_parallel, expert_parallel, max_sequences)
    observed = _observed(idle_watts, active_watts, duty, itl_ms, samples)
    predictor = _load(artifacts, recipe)
    rows: list[dict[str, Any]] = []
    for gpu_spec in [_gpu(name) for name in gpu]:
        try:
            fit = memory_fit(spec, gpu_spec, serving, workload)
            answer = predictor.predict(
                spec, gpu_spec, workload, serving, confidence_percent=confidence, observed=observed
            )
        except (OutOfPredictorRange, InvalidInput) as refused:
            of_the_gpu = isinstance(refused, OutOfPredictorRange) or refused.field == "serving.quantization"
            if len(gpu) == 1 or not of_the_gpu:
                raise
            rows.append({"gpu": gpu_spec.name, "refused": str(refused)})
            continue
        rows.append({"gpu": gpu_spec.name, **asdict(answer), "memory": asdict(fit)})
        if not as_json:
            typer.echo(_text(gpu_spec, answer, fit))
    if as_json:
        typer.echo(json.dumps({"model": spec.id, "predictions": rows}, indent=2))
    else:
        for row in rows:
            if "refused" in row:
                typer.echo(f"{row['gpu']}: {row['refused']}")


def explain(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    model: ModelOption,
    gpu: GpuOption,
    requests_per_second: RateOption = None,
    scenario: ScenarioOption = ScenarioName.SERVER,
    prompt_tokens: PromptOption = 256,
    output_tokens: OutputOption = 256,
    quantization: FormatOption = UNQUANTIZED,
    tensor_parallel: ParallelOption = 1,
    expert_parallel: ExpertsOption = False,
    max_sequences: SequencesOption = None,
    confidence: ConfidenceOption = 90,
    config: ConfigOption = None,
    recipe: ShippedOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a prediction rests on: regime, notes, and each feature's part in it."""
    spec = _model(model, config)
    workload = _workload(scenario, requests_per_second, prompt_tokens, output_tokens)
    serving = _serving(quantization, tensor_parallel, expert_parallel, max_sequences)
    predictor = _load(artifacts, recipe)
    explained = []
    for gpu_spec in [_gpu(name) for name in gpu]:
        reasons = predictor.explain(spec, gpu_spec, workload, serving, confidence_percent=confidence)
        explained.append({"gpu": gpu_spec.name, **asdict(reasons)})
        if not as_json:
            fit = memory_fit(spec, gpu_spec, serving, workload)
            typer.echo(_text(gpu_spec, reasons.prediction, fit))
            typer.echo(_terms(reasons))
    if as_json:
        typer.echo(json.dumps({"model": spec.id, "explanations": explained}, indent=2))


def _model(model_id: str, config: Path | None) -> ModelSpec:
    if config is None:
        return ModelCatalogue.load().get(model_id)
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as broken:
        raise InvalidInput("model.config", f"{config} isn't JSON ({broken}); mend the file") from broken
    return model_from_config(model_id, content)


def _gpu(name: str) -> GpuSpec:
    read = GpuCatalogue.load().lookup(name)
    if read.mig or read.mig_invalid or read.shared:
        raise OutOfPredictorRange(
            "gpu",
            f"{name} is a slice of a GPU or shared; only whole GPUs are predicted, so name the GPU alone",
        )
    return GpuCatalogue.load().get(name)


def _load(artifacts: Path | None, recipe: RecipeName | None) -> Predictor:
    if artifacts is not None and recipe is not None:
        raise InvalidInput("recipe", "give either a recipe or a directory of artifacts")
    return Predictor.load(default_artifacts(recipe.value) if recipe else artifacts)


def _serving(quantization: str, parallel: int, experts: bool, sequences: int | None) -> ServingConfig:
    return ServingConfig(
        quantization=quantization,
        tensor_parallel_size=parallel,
        expert_parallel=experts,
        max_sequences=sequences,
    )


def _observed(
    idle: float | None, active: float | None, duty: float | None, itl_ms: float | None, samples: int
) -> Observed | None:
    if idle is None and active is None and duty is None and itl_ms is None:
        return None
    return Observed(
        context_idle_watts=idle,
        active_watts=active,
        duty=duty,
        itl_seconds=None if itl_ms is None else itl_ms / 1e3,
        samples=samples,
    )


def _workload(scenario: ScenarioName, rate: float | None, prompt: int, output: int) -> Workload:
    return Workload(
        scenario=scenario.value, requests_per_second=rate, prompt_tokens=prompt, output_tokens=output
    )


def _text(gpu: GpuSpec, answer: Prediction, fit: MemoryFit) -> str:
    memory = f"up to {fit.max_sequences} sequences" if fit.fits else "does NOT fit"
    need = f"{fit.required_bytes / 1e9:.1f} of {fit.usable_bytes / 1e9:.1f} GB needed"
    notes = "".join(f"\n    {note}" for note in answer.notes)
    return (
        f"{gpu.name}: {answer.power_watts:.0f} W (at most {math.ceil(answer.power_upper_watts)}), "
        f"{answer.itl_seconds * 1e3:.3g} ms/token (at most {_upward(answer.itl_upper_seconds * 1e3)}), "
        f"{answer.energy_per_token_joules:.3g} J/token, {answer.regime}\n"
        f"    memory: {need}, {memory}{_more(answer)}{notes}"
    )


def _more(answer: Prediction) -> str:
    """The figures that not every recipe predicts."""
    lines = ""
    if answer.itl_p95_seconds and answer.itl_p95_upper_seconds:
        lines += (
            f"\n    95 % of gaps within {answer.itl_p95_seconds * 1e3:.3g} ms "
            f"(at most {_upward(answer.itl_p95_upper_seconds * 1e3)})"
        )
    if answer.ttft_seconds and answer.ttft_upper_seconds:
        lines += (
            f", first token after {answer.ttft_seconds * 1e3:.3g} ms "
            f"(at most {_upward(answer.ttft_upper_seconds * 1e3)})"
        )
    if answer.idle_watts and answer.worst_case_power_watts:
        lines += (
            f"\n    idle {answer.idle_watts:.0f} W, full load at most {answer.worst_case_power_watts:.0f} W"
        )
    if answer.throughput_tokens_per_second and answer.running_sequences:
        lines += (
            f"; {answer.throughput_tokens_per_second:.3g} tokens/s with {answer.running_sequences:.3g} "
            "sequences at work"
        )
    if answer.out_of_range:
        lines += f"\n    outside of what was measured: {', '.join(answer.out_of_range)}"
    return lines


def _upward(value: float) -> str:
    """Three significant digits, rounded up: a bound is never shown below itself."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step - 1e-9) * step:.3g}"


def _terms(reasons: Explanation) -> str:
    power = sorted(reasons.power_terms_watts.items(), key=lambda term: -abs(term[1]))
    factors = sorted(reasons.itl_factors.items(), key=lambda term: -abs(term[1] - 1))
    lines = [f"    at level {reasons.level}, power:"]
    lines += [f"      {name:<20}{value:+9.1f} W" for name, value in power]
    lines += ["    latency:"]
    lines += [
        f"      {name:<20}{value * 1e3:9.3g} ms" if name == "base" else f"      {name:<20}× {value:7.3f}"
        for name, value in factors
    ]
    if reasons.step_seconds:
        lines.append("    a step:")
        parts = sorted(reasons.step_seconds.items(), key=lambda part: -part[1])
        lines += [f"      {name:<20}{value * 1e3:9.3g} ms" for name, value in parts if value > 0]
    return "\n".join(lines)
