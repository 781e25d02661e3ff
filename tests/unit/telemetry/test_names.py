"""One quantity in one unit, under whatever name, and nothing of what can't be true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.readings import GpuReading
from wattkeeper.telemetry.names import ESSENTIAL, QUANTITIES, is_gpu_metric, names_of
from wattkeeper.telemetry.series import FaultKind


@pytest.mark.parametrize(
    ("name", "written", "field", "read"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", 121.5, "power_watts", 121.5),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", 121.5, "power_watts", 121.5),
        ("dcgm_power_usage", 30.982, "power_watts", 30.982),
        ("dcgm_fi_dev_power_usage", 30.982, "power_watts", 30.982),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", 99.0, "power_instant_watts", 99.0),
        ("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", 99.0, "power_instant_watts", 99.0),
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 700.0, "power_limit_watts", 700.0),
        ("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 700.0, "power_limit_watts", 700.0),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", 300.0, "power_limit_watts", 300.0),
        ("DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 300.0, "power_limit_watts", 300.0),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", 350.0, "power_default_watts", 350.0),
        ("DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", 350.0, "power_default_watts", 350.0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 55491669881, "energy_joules", 55491669.881),
        ("dcgm_total_energy_consumption", 55491669881, "energy_joules", 55491669.881),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 55491669.881, "energy_joules", 55491669.881),
        ("DCGM_FI_DEV_GPU_UTIL", 44, "gpu_util_ratio", 0.44),
        ("DCGM_FI_DEV_GPU_UTIL", 1, "gpu_util_ratio", 0.01),
        ("dcgm_gpu_utilization", 44, "gpu_util_ratio", 0.44),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 44, "gpu_util_ratio", 0.44),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.44, "gpu_util_ratio", 0.44),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0, "gpu_util_ratio", 0.0),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 10, "memory_copy_ratio", 0.1),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.714, "engine_active_ratio", 0.714),
        ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 0.714, "engine_active_ratio", 0.714),
        ("dcgm_fi_prof_gr_engine_active", 0.714, "engine_active_ratio", 0.714),
        ("DCGM_FI_PROF_SM_ACTIVE", 0.5, "sm_active_ratio", 0.5),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", 0.5, "sm_active_ratio", 0.5),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5, "tensor_active_ratio", 0.5),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.5, "tensor_active_ratio", 0.5),
        ("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, "dram_active_ratio", 0.5),
        ("DCGM_FI_PROF_DRAM_UTIL_RATIO", 0.5, "dram_active_ratio", 0.5),
        ("DCGM_FI_DEV_FB_USED", 21383, "memory_used_bytes", 21383 * 1024**2),
        ("dcgm_fb_free", 1, "memory_free_bytes", 1024**2),
        ("DCGM_FI_DEV_SM_CLOCK", 1980, "sm_clock_mhz", 1980.0),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.98e9, "sm_clock_mhz", 1980.0),
        ("dcgm_memory_clock", 5000, "memory_clock_mhz", 5000.0),
        ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 2.619e9, "memory_clock_mhz", 2619.0),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 33, "temperature_celsius", 33.0),
        ("DCGM_FI_DEV_MEMORY_TEMP", 54, "memory_temperature_celsius", 54.0),
    ],
)
def test_every_name_gives_one_quantity_in_one_unit(
    name: str, written: float, field: str, read: float
) -> None:
    quantity = QUANTITIES[name]
    assert quantity.field == field
    assert quantity.read(float(written)) == pytest.approx(read, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "written", "fault"),
    [
        # The exporter before 2021 and other clients of DCGM print the marks.
        ("DCGM_FI_DEV_MEMORY_TEMP", 9223372036854775794, FaultKind.BLANK),
        ("DCGM_FI_DEV_MEMORY_TEMP", 9223372036854776000, FaultKind.BLANK),  # after rounding
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 140737488355328.0, FaultKind.BLANK),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 140737488355331.0, FaultKind.BLANK),
        ("DCGM_FI_DEV_FB_USED", 2147483632, FaultKind.BLANK),
        ("DCGM_FI_DEV_GPU_UTIL", 2147483635, FaultKind.BLANK),
        ("DCGM_FI_DEV_POWER_USAGE", 140737488355330.0, FaultKind.BLANK),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9223372036854775792, FaultKind.BLANK),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 140737488355328.0, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 9223372036854775794, FaultKind.BLANK),
        # dcgm-exporter#418
        ("DCGM_FI_DEV_GPU_UTIL", 2619, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_GPU_UTIL", 808334905, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_GPU_UTIL", 4294967295, FaultKind.BLANK),
        ("DCGM_FI_DEV_GPU_UTIL", 101, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_GPU_UTIL", -1, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_POWER_USAGE", 0.0, FaultKind.OUT_OF_RANGE),
        ("DCGM_FI_DEV_POWER_USAGE", math.nan, FaultKind.NOT_A_NUMBER),
        ("DCGM_FI_DEV_POWER_USAGE", math.inf, FaultKind.NOT_A_NUMBER),
    ],
)
def test_what_cant_be_true_is_no_value(name: str, written: float, fault: FaultKind) -> None:
    assert QUANTITIES[name].read(float(written)) is fault


def test_the_energy_counter_may_pass_the_blank_values_of_32_bits() -> None:
    assert QUANTITIES["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"].read(129931554972.0) == pytest.approx(
        129931554.972
    )


@given(st.floats(), st.sampled_from(sorted(QUANTITIES)))
def test_no_value_is_read_beyond_its_bounds(value: float, name: str) -> None:
    read = QUANTITIES[name].read(value)
    assert isinstance(read, FaultKind) or (math.isfinite(read) and read < 2.0**53)


@given(st.floats(0, 1), st.floats(1, 100))
def test_a_ratio_never_looks_idler_than_the_percentage_it_may_be(ratio: float, percent: float) -> None:
    read = QUANTITIES["DCGM_FI_DEV_GPU_UTIL_RATIO"].read
    assert read(ratio) == ratio
    shown = read(percent)
    assert isinstance(shown, float) and shown >= percent / 100


def test_the_better_name_comes_first() -> None:
    assert names_of("power_limit_watts")[0] == "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"
    ranks = [QUANTITIES[name].rank for name in names_of("power_limit_watts")]
    assert ranks == sorted(ranks) and len(set(ranks)) == len(ranks)


def test_every_quantity_is_a_field_of_the_reading() -> None:
    fields = set(GpuReading.__dataclass_fields__)
    assert {quantity.field for quantity in QUANTITIES.values()} <= fields
    assert set(ESSENTIAL) <= fields and all(names_of(field) for field in ESSENTIAL)


def test_other_metrics_are_not_read() -> None:
    assert is_gpu_metric("DCGM_FI_DEV_GPU_UTIL")
    assert not is_gpu_metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
    assert not is_gpu_metric("DCGM_EXP_CLOCK_EVENTS_COUNT")
