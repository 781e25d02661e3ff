"""A measurement of the parking tax on one GPU, as figures that stand beside those of its daily readings.

A measurement (bare, then with a context and nothing running) is evidence of the same kind as the resting
readings of telemetry, so it is gathered into the same batches and counts by their number. It is kept apart
from them and combined when read: nothing is counted twice, and as daily readings grow it weighs less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wattkeeper.core.power_samples import (
    EMPTY_STATE,
    GpuPowerState,
    Moments,
    RestState,
    add_reading,
)
from wattkeeper.core.readings import GpuReading, Sample


@dataclass(frozen=True, slots=True)
class RestReading:
    """One reading of a GPU at rest, `at` in Unix seconds."""

    at: float
    state: RestState
    watts: float
    sm_clock_mhz: float | None = None


def gather(uuid: str, readings: Iterable[RestReading]) -> GpuPowerState:
    """The figures of one GPU's readings, in their order of time."""
    kept = EMPTY_STATE
    for each in readings:
        clock = None if each.sm_clock_mhz is None else Sample(each.sm_clock_mhz, each.at)
        reading = GpuReading(uuid, power_watts=Sample(each.watts, each.at), sm_clock_mhz=clock)
        kept = add_reading(kept, each.state, reading)
    return GpuPowerState(kept.moments)  # a batch that wasn't filled says nothing


def combine(one: GpuPowerState, other: GpuPowerState) -> GpuPowerState:
    """The figures as if the batches of both had been counted together; a batch being gathered is `one`'s."""
    moments = dict(one.moments)
    for state, added in other.moments.items():
        there = moments.get(state)
        moments[state] = added if there is None else _together(there, added)
    return GpuPowerState(moments, one.batch)


def _together(one: Moments, other: Moments) -> Moments:
    weight = one.weight + other.weight
    if weight == 0:
        return one
    apart = other.mean_watts - one.mean_watts
    share = other.weight / weight
    return Moments(
        weight,
        one.mean_watts + apart * share,
        one.m2 + other.m2 + apart**2 * one.weight * share,
        _clock(one, other, share),
    )


def _clock(one: Moments, other: Moments, share: float) -> float | None:
    if one.sm_clock_mhz is None or other.sm_clock_mhz is None:
        return one.sm_clock_mhz if other.sm_clock_mhz is None else other.sm_clock_mhz
    return one.sm_clock_mhz + (other.sm_clock_mhz - one.sm_clock_mhz) * share
