"""From a real Prometheus to the core's verdict: idle by evidence, and never for want of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from tests.prometheus.remote_write import RemoteWriter
from tests.prometheus.server import PrometheusServer
from tests.telemetry.fleet import T0, Fleet
from wattkeeper.core.idleness import Idleness, ModelEvidence, PodEvidence, assess
from wattkeeper.core.readings import GpuReading
from wattkeeper.core.witnesses import IdleLevel, IdleMemory, Verdict
from wattkeeper.telemetry.errors import TelemetryError
from wattkeeper.telemetry.prometheus import PrometheusSource

STEP_SECONDS = 30.0


@pytest.fixture
def writer(prometheus: PrometheusServer) -> Iterator[RemoteWriter]:
    writer = RemoteWriter(prometheus.url)
    yield writer
    writer.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return Fleet(re.sub(r"\W", "_", request.node.name))


class Watch:
    """Looks at one model again and again, as the sweep does, remembering what the core remembers."""

    def __init__(self, fleet: Fleet, source: PrometheusSource) -> None:
        self.fleet, self.source, self.memory = fleet, source, IdleMemory()

    async def look(self, at: float) -> Idleness | TelemetryError:
        try:
            telemetry = await self.source.read(at, self.fleet.cluster())
        except TelemetryError as error:
            return error
        gpus: tuple[GpuReading, ...] = telemetry.gpus_of("team", "llm-0")
        pod = PodEvidence("llm-0", T0 - 600, telemetry.server_of("team", "llm-0"), gpus)
        levels = {self.fleet.uuid(): IdleLevel(121.5, 0.5, True)}
        found = assess(ModelEvidence((pod,), levels), self.memory, at)
        self.memory = found.memory
        return found


async def test_idle_since_its_last_token_was_scraped(
    fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
) -> None:
    watch = Watch(fleet, fleet.source(prometheus))
    found: Idleness | TelemetryError | None = None
    for step in range(12):
        at = T0 + STEP_SECONDS * step
        tokens = 500.0 + 7 * min(step, 4)
        fleet.write(writer, at, server={"vllm:generation_tokens_total": tokens})
        found = await watch.look(at + 1)
        assert isinstance(found, Idleness)
        assert found.verdict is (
            Verdict.UNKNOWN if step == 0 else Verdict.BUSY if step <= 4 else Verdict.IDLE
        )
    assert isinstance(found, Idleness)
    assert found.idle_since == T0 + 4 * STEP_SECONDS and found.gpu_confirmed
    await watch.source.close()


@pytest.mark.parametrize(
    ("gpu", "server"),
    [
        ({"DCGM_FI_DEV_POWER_USAGE": math.nan}, {}),
        ({"DCGM_FI_DEV_POWER_USAGE": 0.0}, {}),
        ({"DCGM_FI_DEV_GPU_UTIL": math.nan}, {}),
        ({"DCGM_FI_DEV_GPU_UTIL": 808334905.0}, {}),
        ({"DCGM_FI_DEV_GPU_UTIL": 2147483634.0}, {}),
        ({}, {"vllm:num_requests_running": math.nan}),
        ({}, {"vllm:num_requests_waiting": math.nan}),
        ({}, {"vllm:prompt_tokens_total": math.nan}),
        ({}, {"vllm:generation_tokens_total": math.nan}),
        ({"DCGM_FI_DEV_GPU_UTIL": 5.0}, {}),
        ({"DCGM_FI_DEV_POWER_USAGE": 190.0}, {}),
        # A profiling metric stuck at 0 clears nobody: here it is 0 throughout.
        ({"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_DEV_POWER_USAGE": 600.0}, {}),
    ],
)
async def test_one_value_that_says_nothing_or_otherwise_is_enough_to_keep_a_model(
    fleet: Fleet,
    prometheus: PrometheusServer,
    writer: RemoteWriter,
    gpu: dict[str, float],
    server: dict[str, float],
) -> None:
    watch = Watch(fleet, fleet.source(prometheus))
    verdicts = []
    for step in range(7):
        at = T0 + STEP_SECONDS * step
        bad = step == 5
        fleet.write(writer, at, gpu=gpu if bad else None, server=server if bad else None)
        found = await watch.look(at + 1)
        assert isinstance(found, Idleness)
        verdicts.append(found.verdict)
    assert verdicts[1:5] == [Verdict.IDLE] * 4
    assert verdicts[5] is not Verdict.IDLE
    assert verdicts[6] in (Verdict.IDLE, Verdict.BUSY)  # and it recovers by itself
    await watch.source.close()


async def test_scrapes_that_stop_end_the_evidence(
    fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
) -> None:
    watch = Watch(fleet, fleet.source(prometheus))
    for step in range(4):
        fleet.write(writer, T0 + STEP_SECONDS * step)
        await watch.look(T0 + STEP_SECONDS * step + 1)
    last = T0 + 3 * STEP_SECONDS
    for later in range(0, 400, 10):
        found = await watch.look(last + later)
        idle = isinstance(found, Idleness) and found.verdict is Verdict.IDLE
        assert idle == (later <= 90)
    await watch.source.close()
