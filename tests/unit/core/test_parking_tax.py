"""The parking tax: measured on the seed's boards, drawn from the catalogue until then."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.parking_catalogue import Basis, figures_for
from wattkeeper.core.parking_tax import (
    ENOUGH_BATCHES,
    HeldGpu,
    ParkingTax,
    PoolFigures,
    gpu_tax,
    pool_figures,
    saving,
)
from wattkeeper.core.power_samples import (
    BATCH_SECONDS,
    EMPTY_STATE,
    GpuPowerState,
    Moments,
    RestState,
    add_reading,
    from_plain,
    rest_state,
    to_plain,
)
from wattkeeper.core.readings import GpuReading, Holder, Sample

H100 = figures_for("NVIDIA-H100-80GB-HBM3")
T4 = figures_for("Tesla-T4", 70.0)
UUID = "GPU-1"
NO_POOL = PoolFigures()


def reading(
    at: float = 1000.0,
    watts: float | None = 71.8,
    memory_mib: float | None = 4.0,
    util: float | None = 0.0,
    engine: float | None = None,
    clock: float | None = 345.0,
    holders: tuple[Holder, ...] = (),
    jobs: tuple[str, ...] = (),
) -> GpuReading:
    def sample(value: float | None) -> Sample | None:
        return None if value is None else Sample(value, at)

    return GpuReading(
        UUID,
        power_watts=sample(watts),
        memory_used_bytes=sample(None if memory_mib is None else memory_mib * 2**20),
        gpu_util_ratio=sample(util),
        engine_active_ratio=sample(engine),
        sm_clock_mhz=sample(clock),
        holders=holders,
        other_jobs=jobs,
    )


HELD = (Holder("team", "llm-0"),)


@pytest.mark.parametrize(
    ("gpu", "idle", "pods", "state"),
    [
        (reading(), None, 0, RestState.BARE),
        (reading(memory_mib=99), None, 0, RestState.BARE),
        (reading(memory_mib=623, holders=HELD), True, 1, RestState.CONTEXT),
        # The labels of one scrape were lost; the cluster knows the pod.
        (reading(memory_mib=623), True, 1, RestState.CONTEXT),
        (reading(), None, None, None),  # who holds it isn't known
        (reading(memory_mib=623), None, 0, None),  # memory is held by nobody known
        (reading(memory_mib=None), None, 0, None),
        (reading(holders=HELD), None, 1, None),
        (reading(holders=HELD), False, 1, None),
        (reading(util=0.01), None, 0, None),
        (reading(util=None), None, 0, None),
        (reading(util=0.0, engine=0.2), None, 0, None),
        (reading(util=None, engine=0.0), None, 0, RestState.BARE),
        (reading(watts=None), None, 0, None),
        (reading(jobs=("1001",)), None, 0, None),
    ],
)
def test_which_readings_count(
    gpu: GpuReading, idle: bool | None, pods: int | None, state: RestState | None
) -> None:
    found, reason = rest_state(gpu, holders_idle=idle, pods_known=pods)
    assert found is state
    assert bool(reason) is (state is None)


def test_a_changed_environment_is_measured_apart() -> None:
    found, _ = rest_state(reading(holders=HELD), holders_idle=True, pods_known=1, unboosted=True)
    assert found is RestState.CONTEXT_UNBOOSTED


def feed(kept: GpuPowerState, state: RestState, readings: Iterable[GpuReading]) -> GpuPowerState:
    for gpu in readings:
        kept = add_reading(kept, state, gpu)
    return kept


def steady(watts: float, start: float, minutes: float, clock: float = 345.0) -> list[GpuReading]:
    return [reading(start + 30 * i, watts, clock=clock) for i in range(int(minutes * 2) + 1)]


def test_batches_settle_first_and_are_counted_as_one() -> None:
    # A minute of settling, then five batches of five minutes; the sixth isn't full yet.
    kept = feed(EMPTY_STATE, RestState.BARE, [*steady(500, 0, 0.5), *steady(72, 60, 26)])
    moments = kept.moments[RestState.BARE]
    assert (moments.weight, moments.mean_watts, moments.sm_clock_mhz) == (5, 72.0, 345.0)


def test_a_gap_or_another_state_starts_anew() -> None:
    kept = feed(EMPTY_STATE, RestState.BARE, steady(72, 0, 8))
    assert kept.moments[RestState.BARE].weight == 1
    kept = feed(kept, RestState.CONTEXT, steady(121, 510, 8))
    kept = add_reading(kept, None, reading(1020))
    assert kept.batch is None
    kept = feed(kept, RestState.BARE, [reading(1050), reading(1050 + BATCH_SECONDS + 1)])
    assert {state: m.weight for state, m in kept.moments.items()} == {RestState.BARE: 1, RestState.CONTEXT: 1}


def test_readings_seen_twice_or_out_of_order_change_nothing() -> None:
    kept = feed(EMPTY_STATE, RestState.BARE, steady(72, 0, 8))
    assert kept.batch is not None
    for at in (kept.batch.last_at, kept.batch.last_at - 30):
        assert add_reading(kept, RestState.BARE, reading(at, 400.0)) == kept


def moments(mean: float, sigma: float = 0.5, weight: float = 20.0, clock: float | None = None) -> Moments:
    return Moments(weight, mean, sigma**2 * (weight - 1), clock)


def state(bare: Moments | None = None, context: Moments | None = None) -> GpuPowerState:
    pairs = ((RestState.BARE, bare), (RestState.CONTEXT, context))
    return GpuPowerState({name: m for name, m in pairs if m is not None})


def tax_of(kept: GpuPowerState, pool: PoolFigures = NO_POOL) -> ParkingTax:
    found = gpu_tax(kept, pool, H100)
    assert found is not None
    return found


def test_nothing_measured_is_the_catalogues() -> None:
    found = tax_of(EMPTY_STATE)
    assert (found.watts, found.bare_watts, found.context_watts) == pytest.approx((49.9, 71.8, 121.7))
    assert found.basis is Basis.CATALOGUE
    assert found.low_watts < 35 < 65 < found.high_watts
    assert not found.idle_level().measured
    other = gpu_tax(EMPTY_STATE, NO_POOL, T4)
    assert other is not None and other.basis is Basis.PRIOR and other.watts == pytest.approx(4.97)


def test_both_levels_measured_need_no_prior() -> None:
    found = tax_of(state(moments(98.96, 0.03), moments(152.0, 0.1)))
    assert found.watts == pytest.approx(53.04, abs=0.1)
    assert found.high_watts - found.low_watts < 2
    assert found.low_watts < found.watts < found.high_watts
    assert found.basis is Basis.MEASURED
    assert found.idle_level().measured


@pytest.mark.parametrize(
    "kept", [state(context=moments(155.2, 0.1)), state(bare=moments(98.96, 0.03))], ids=["context", "bare"]
)
def test_one_level_alone_says_little_of_the_tax(kept: GpuPowerState) -> None:
    # A board that lies 30 W above the catalogue's lies there in both states.
    found = tax_of(kept)
    assert 40 < found.watts < 72
    assert found.basis is Basis.CATALOGUE


def test_a_pool_speaks_for_the_gpus_not_measured_yet() -> None:
    pool = pool_figures([state(moments(b), moments(b + 30.0)) for b in (70.0, 71.0, 72.0, 73.0)])
    assert pool.states[RestState.BARE].mean_watts == pytest.approx(71.5)
    assert pool.taxes[RestState.CONTEXT].mean_watts == pytest.approx(30.0)
    found = tax_of(EMPTY_STATE, pool)
    assert (found.watts, found.basis) == (pytest.approx(30.0), Basis.POOL)
    assert found.high_watts - found.low_watts < tax_of(EMPTY_STATE).high_watts - tax_of(EMPTY_STATE).low_watts
    # Its own measurements outweigh the pool.
    own = tax_of(state(moments(80.0), moments(150.0)), pool)
    assert own.watts == pytest.approx(70.0, abs=0.5) and own.basis is Basis.MEASURED


def test_few_batches_weigh_little_and_don_t_count_as_measured() -> None:
    few = ENOUGH_BATCHES - 1.0
    found = tax_of(state(moments(71.0, 8.0, few), moments(141.0, 8.0, few)))
    assert found.basis is Basis.CATALOGUE
    assert 49.9 < found.watts < 70.0
    assert pool_figures([state(moments(71.0, 8.0, few))]) == NO_POOL


def test_without_boost_nothing_is_known_until_it_was_measured() -> None:
    assert gpu_tax(state(moments(71.8), moments(121.7)), NO_POOL, H100, unboosted=True) is None
    kept = GpuPowerState(
        {RestState.BARE: moments(71.8), RestState.CONTEXT_UNBOOSTED: moments(78.0, clock=345.0)}
    )
    found = gpu_tax(kept, NO_POOL, H100, unboosted=True)
    assert found is not None and found.watts == pytest.approx(6.2, abs=0.3)
    assert found.context_sm_clock_mhz == 345.0
    # The tax of models with boost stays what it was.
    assert tax_of(kept).basis is Basis.CATALOGUE


@given(
    bare=st.floats(20, 150),
    tax=st.floats(-20, 150),
    sigma=st.floats(0.01, 3),
    weights=st.tuples(st.floats(40, 2000), st.floats(40, 2000)),
)
def test_with_many_batches_the_tax_is_the_measured_one(
    bare: float, tax: float, sigma: float, weights: tuple[float, float]
) -> None:
    found = tax_of(state(moments(bare, sigma, weights[0]), moments(bare + tax, sigma, weights[1])))
    assert found.watts == pytest.approx(max(0.0, tax), abs=0.5 + 0.01 * abs(tax - 49.9))
    assert found.low_watts < tax + 0.5 and found.high_watts > tax - 0.5
    assert found.basis is Basis.MEASURED


def test_a_mean_over_years_still_learns() -> None:
    rng = random.Random(1)
    kept = Moments()
    for _ in range(20_000):
        kept = kept.add(rng.gauss(70, 1), None)
    for _ in range(6_000):
        kept = kept.add(rng.gauss(60, 1), None)
    assert kept.mean_watts == pytest.approx(60, abs=1)
    assert kept.weight <= 2017


def test_figures_survive_a_restart_and_are_small() -> None:
    kept = GpuPowerState({each: moments(70.123456, 0.5, 1234.5678, 345.0) for each in RestState})
    plain = json.loads(json.dumps(to_plain(kept)))
    again = from_plain(plain)
    assert to_plain(again) == plain
    assert again.moments[RestState.BARE].mean_watts == pytest.approx(70.123456, abs=1e-4)
    # 500 GPUs in one ConfigMap: far below its limit of 1 MiB.
    assert len(json.dumps({f"GPU-{'0' * 32}-{n}": plain for n in range(500)})) < 200_000


@pytest.mark.parametrize(
    "plain",
    [
        {"bare": [1, 2]},
        {"bare": [math.nan, 1, 1, 1]},
        {"bare": "x"},
        {"other": [1, 2, 3, 4]},
        {"bare": [-1, 2, 3, 4]},
    ],
)
def test_figures_of_another_form_are_measured_anew(plain: dict[str, object]) -> None:
    assert from_plain(plain) == EMPTY_STATE


def held(uuid: str, tax: float = 50.0, **more: object) -> HeldGpu:
    found = tax_of(state(moments(70.0), moments(70.0 + tax)))
    return HeldGpu(uuid, found, **more)  # type: ignore[arg-type]


def test_several_gpus_add_up() -> None:
    found = saving([held("a"), held("b"), held("c", 30.0)])
    assert found.watts == pytest.approx(130, abs=1)
    assert found.low_watts < found.watts < found.high_watts
    assert not found.kept_hot_by and not found.unknown


def test_a_shared_gpu_saves_nothing_until_the_last_context_leaves() -> None:
    found = saving([held("a", neighbours=("team/x", "team/y")), held("b")])
    assert found.watts == pytest.approx(50, abs=1)
    assert found.kept_hot_by == {"a": ("team/x", "team/y")}
    assert found.share_watts == pytest.approx(50 + 50 / 3, abs=1)


def test_what_isnt_known_is_said() -> None:
    found = saving([HeldGpu("a", None), held("b", neighbours_known=False), held("c", mig_share=0.25)])
    assert found.unknown == ("a", "b")
    assert found.estimated


def dose_response(path: Path) -> list[tuple[RestState, GpuReading]]:
    """The recorded study as telemetry: a bare half hour and hours of idle context."""
    found = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        bare = row["phase"] == "bare_idle"
        at = datetime.fromisoformat(row["timestamp"]).timestamp()
        gpu = reading(
            at,
            row["power_w"],
            row["mem_used_mb"],
            row["gpu_util_pct"] / 100,
            clock=row["sm_clock_mhz"],
            holders=() if bare else HELD,
        )
        kind, _ = rest_state(gpu, holders_idle=None if bare else True, pods_known=0 if bare else 1)
        assert kind is not None
        found.append((kind, gpu))
    return found


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "name", "tax", "clocks"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", 49.9, (345, 1980)),
        ("a100", "NVIDIA A100 80GB PCIe", 26.3, (210, 1410)),
        ("l40s", "NVIDIA L40S", 66.4, (210, 2520)),
    ],
)
def test_the_recorded_boards_are_measured_within_a_watt(
    file: str, name: str, tax: float, clocks: tuple[int, int], data_dir: Path
) -> None:
    kept = EMPTY_STATE
    for kind, gpu in dose_response(data_dir / "parking-tax" / f"{file}_dose_response.jsonl"):
        kept = add_reading(kept, kind, gpu)
    # Twenty bare minutes are three batches: the catalogue is still heard. Twice as many would do.
    found = gpu_tax(kept, NO_POOL, figures_for(name))
    assert found is not None
    assert found.watts == pytest.approx(tax, abs=1.0)
    assert found.low_watts < tax < found.high_watts
    assert (found.bare_sm_clock_mhz, found.context_sm_clock_mhz) == pytest.approx(clocks)
