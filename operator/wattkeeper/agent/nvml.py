"""Boards as NVML tells them, in the units of our names; what a driver doesn't tell is None, never 0.

NVML reports power in mW, its energy counter in mJ since the driver was loaded, memory in bytes, clocks in
MHz, utilisation in percent. An old driver lacks functions, a virtual GPU or a container's rights withhold
others: those values are unknown, and `BoardState.unknown` says why. A board that is gone, or a driver that
can't be reached, is an error that names the cure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pynvml

from wattkeeper.agent.errors import DriverError, GpuLostError

T = TypeVar("T")

#: No board draws so much; what is beyond is a driver's fault.
_MOST_WATTS = 5000.0

#: Answers after which a value is unknown while the others may be known.
_UNKNOWN = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
        pynvml.NVML_ERROR_TIMEOUT,
    }
)
_LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})

_NO_DRIVER = (
    "run this on a node with an NVIDIA driver; in a container, the NVIDIA container runtime brings the "
    "library when NVIDIA_DRIVER_CAPABILITIES contains utility"
)
_CURES: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: _NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "load the kernel module (modprobe nvidia), or give the container a GPU (nvidia.com/gpu: 1)"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "let this user read /dev/nvidiactl and /dev/nvidia0, or give the container a GPU (nvidia.com/gpu: 1)"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was upgraded while its kernel module stayed: reboot the node, or reload the module"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: "it fell off the bus: look for Xid 79 in dmesg, and reboot the node",
    pynvml.NVML_ERROR_RESET_REQUIRED: "drain the node and run nvidia-smi --gpu-reset",
}
_OTHERWISE = "look for NVRM and Xid lines in dmesg, and see whether nvidia-smi works on the node"


@dataclass(frozen=True, slots=True)
class BoardIdentity:
    """What doesn't change while a board is watched."""

    uuid: str
    index: int  # NVML's own order, by PCI bus
    name: str
    pci_bus_id: str | None
    driver_version: str | None
    mig_enabled: bool | None


@dataclass(frozen=True, slots=True)
class BoardState:
    """One reading. `processes` are the ids NVML gives: the host's, or those of the container's namespace."""

    power_watts: float | None = None  # of the last second on Ampere and newer, instantaneous on older boards
    power_limit_watts: float | None = None
    energy_joules: float | None = None  # counter since the driver was loaded
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    gpu_util_ratio: float | None = None
    memory_util_ratio: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # without what the driver reserves for itself
    memory_free_bytes: int | None = None
    processes: frozenset[int] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)  # why a value is None, for people


class Board:
    """One GPU, for as long as NVML is open."""

    def __init__(self, handle: Any, identity: BoardIdentity) -> None:
        self._handle = handle
        self.identity = identity

    def read(self) -> BoardState:
        """All values now. Raises GpuLostError and DriverError."""
        ask = _Questions(f"GPU {self.identity.uuid}")
        handle = self._handle
        power = ask("power", lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
        if power is not None and power > _MOST_WATTS:
            ask.unknown["power"] = f"{power:g} W can't be"
            power = None
        limit = ask("power limit", lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3)
        energy = ask("energy", lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
        sm_clock = ask("SM clock", lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        memory_clock = ask(
            "memory clock", lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        )
        celsius = _temperature(ask, handle)
        memory_celsius = ask("memory temperature", lambda: _memory_temperature(handle))
        utilization = ask("utilisation", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
        memory = _memory(ask, handle)
        return BoardState(
            power_watts=power,
            power_limit_watts=limit,
            energy_joules=energy,
            sm_clock_mhz=_number(sm_clock),
            memory_clock_mhz=_number(memory_clock),
            temperature_celsius=_number(celsius),
            memory_temperature_celsius=_number(memory_celsius),
            gpu_util_ratio=None if utilization is None else _ratio(utilization.gpu),
            memory_util_ratio=None if utilization is None else _ratio(utilization.memory),
            memory_total_bytes=None if memory is None else int(memory.total),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_free_bytes=None if memory is None else int(memory.free),
            processes=_processes(ask, handle),
            unknown=ask.unknown,
        )


@contextlib.contextmanager
def open_nvml() -> Iterator[list[Board]]:
    """The node's boards in NVML's order, while NVML is open. Raises DriverError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _error("NVML can't be opened", error) from None
    try:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise _error("the GPUs can't be counted", error) from None
        yield [_board(index) for index in range(count)]
    finally:
        with contextlib.suppress(pynvml.NVMLError):  # nothing is left that it could release
            pynvml.nvmlShutdown()


def choose(boards: list[Board], wanted: str | None) -> Board:
    """The board of this UUID or index; without either the only one there is. Raises DriverError."""
    if not boards:
        raise DriverError("no GPU is visible here: give the container one (nvidia.com/gpu: 1)")
    listed = "; ".join(f"{b.identity.index}: {b.identity.name} {b.identity.uuid}" for b in boards)
    if wanted is None:
        if len(boards) > 1:
            raise DriverError(f"{len(boards)} GPUs are here: choose one by --gpu INDEX or UUID ({listed})")
        return boards[0]
    for board in boards:
        if wanted in (board.identity.uuid, str(board.identity.index)):
            return board
    raise DriverError(f"no GPU {wanted} is visible here: --gpu takes one of {listed}")


def _board(index: int) -> Board:
    ask = _Questions(f"GPU {index}")
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        raise _error(f"GPU {index} can't be opened", error) from None
    mig = ask("MIG mode", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return Board(
        handle,
        BoardIdentity(
            uuid,
            index,
            name,
            ask("PCI bus id", lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busIdLegacy)),
            ask("driver version", pynvml.nvmlSystemGetDriverVersion),
            # Boards and drivers without MIG answer that they don't support it.
            None if mig is None else mig == pynvml.NVML_DEVICE_MIG_ENABLE,
        ),
    )


class _Questions:
    """Asks NVML, and keeps why an answer stayed out."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.unknown: dict[str, str] = {}

    def __call__(self, what: str, question: Callable[[], T]) -> T | None:
        try:
            answer = question()
        except pynvml.NVMLError as error:
            if error.value not in _UNKNOWN:
                raise _error(f"{self._subject}: {what}", error) from None
            self.unknown[what] = str(error)
            return None
        self.unknown.pop(what, None)
        return answer


def _error(what: str, error: Any) -> DriverError:
    kind = GpuLostError if error.value in _LOST else DriverError
    return kind(f"{what}: {error}: {_CURES.get(error.value, _OTHERWISE)}")


def _memory(ask: _Questions, handle: Any) -> Any | None:
    """Version 2 sets apart what the driver reserves; drivers before 510 don't have it, nor count that."""
    found = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2))
    return found if found is not None else ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))


def _temperature(ask: _Questions, handle: Any) -> int | None:
    """Two functions for one sensor: drivers before 560 lack the first, NVML is to lose the second."""
    sensor = pynvml.NVML_TEMPERATURE_GPU
    found = ask("temperature", lambda: int(pynvml.nvmlDeviceGetTemperatureV(handle, sensor)))
    if found is not None:
        return found
    return ask("temperature", lambda: int(pynvml.nvmlDeviceGetTemperature(handle, sensor)))


def _memory_temperature(handle: Any) -> int:
    (answer,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.uiVal)


def _processes(ask: _Questions, handle: Any) -> frozenset[int] | None:
    """Process ids with a context of any kind; None where the driver doesn't list compute contexts."""
    compute = _listed(ask, handle, "Compute")
    if compute is None:
        return None
    others = [_listed(ask, handle, kind) or frozenset() for kind in ("Graphics", "MPSCompute")]
    return compute.union(*others)


def _listed(ask: _Questions, handle: Any, kind: str) -> frozenset[int] | None:
    for version in ("v3", "v2"):
        function = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}")
        entries = ask(f"{kind} processes", lambda function=function: function(handle))  # type: ignore[misc]
        if entries is not None:
            return frozenset(entry.pid for entry in entries)
    return None


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _ratio(percent: int) -> float | None:
    """Drivers were seen to answer millions of percent: such a figure says nothing."""
    return percent / 100 if percent <= 100 else None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
