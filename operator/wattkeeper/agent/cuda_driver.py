"""A CUDA context and memory on one GPU, through the driver API alone: no toolkit, no framework.

The context is the device's primary one, which frameworks use too. It is released, and the memory before it,
when the `with` block ends in any way.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from wattkeeper.agent.errors import DriverError, GpuLostError

LIBRARY = "libcuda.so.1"

_int_p = ctypes.POINTER(ctypes.c_int)
_handle_p = ctypes.POINTER(ctypes.c_void_p)
_device_memory = ctypes.c_uint64  # CUdeviceptr
_string_p = ctypes.POINTER(ctypes.c_char_p)

#: Functions by the name of the version that we call, with their arguments; all return a CUresult.
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (ctypes.c_int, _string_p),
    "cuDeviceGetCount": (_int_p,),
    "cuDeviceGet": (_int_p, ctypes.c_int),
    "cuDeviceGetUuid": (ctypes.c_char_p, ctypes.c_int),
    "cuDeviceGetByPCIBusId": (_int_p, ctypes.c_char_p),
    "cuDevicePrimaryCtxRetain": (_handle_p, ctypes.c_int),
    "cuDevicePrimaryCtxRelease": (ctypes.c_int,),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuMemAlloc_v2": (ctypes.POINTER(_device_memory), ctypes.c_size_t),
    "cuMemFree_v2": (_device_memory,),
}
_SUCCESS, _OUT_OF_MEMORY, _UNKNOWN = 0, 2, 999
#: What the GPU answers when it failed or is gone: hardware stack error, uncorrectable ECC error, launch
#: failure, a context that died with it.
_LOST = frozenset({214, 219, 220, 700, 702, 714, 719})

_NO_DEVICE = (
    "give the container a GPU (nvidia.com/gpu: 1) with NVIDIA_DRIVER_CAPABILITIES=compute,utility, and look "
    "whether CUDA_VISIBLE_DEVICES hides it"
)
_CURES: Mapping[int, str] = {
    _OUT_OF_MEMORY: "choose smaller --levels, or a GPU that nobody else uses",
    34: "this is the toolkit's stub, not the driver: take it out of LD_LIBRARY_PATH",
    46: "another process has it for itself (compute mode): nvidia-smi --compute-mode=DEFAULT on the node",
    100: _NO_DEVICE,
    101: _NO_DEVICE,
    802: "NVSwitch isn't up: start nvidia-fabricmanager on the node",
    803: "the driver was upgraded while its kernel module stayed: reboot the node, or reload the module",
    _UNKNOWN: "look whether the nvidia_uvm module is loaded and /dev/nvidia-uvm can be opened",
}
_OTHERWISE = "look for NVRM and Xid lines in dmesg"


def probe(uuid: str, pci_bus_id: str | None) -> None:
    """Find out whether CUDA could hold a board, in a process that ends at once.

    Nobody promises that an initialised CUDA leaves a board at its bare power, so this process shouldn't have
    it while the bare board is measured. Raises DriverError.
    """
    command = [sys.executable, "-m", __name__, uuid, pci_bus_id or ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  ourselves
    if done.returncode != 0:
        raise DriverError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])


class CudaDriver:
    """The driver library, initialised. Raises DriverError where there is none or no GPU."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise DriverError(
                f"the CUDA driver can't be loaded: {error}: run this on a node with an NVIDIA driver; in a "
                "container, NVIDIA_DRIVER_CAPABILITIES must contain compute"
            ) from None
        self.call("cuInit", 0)

    def has(self, function: str) -> bool:
        """Whether this driver has the function; old ones lack some."""
        return hasattr(self._library, function)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of `_FUNCTIONS`. Raises DriverError with CUDA's own name of the error."""
        code = self._raw(function, *arguments)
        if code != _SUCCESS:
            kind = GpuLostError if code in _LOST else DriverError
            raise kind(f"{function}: {self._name_of(code)}: {_CURES.get(code, _OTHERWISE)}")

    def device_of(self, uuid: str, pci_bus_id: str | None) -> int:
        """CUDA's device for a board of NVML's. CUDA orders by speed and by CUDA_VISIBLE_DEVICES, NVML by bus.

        Raises DriverError where CUDA doesn't see that board.
        """
        if self.has("cuDeviceGetUuid"):
            for device in self._devices():
                if self._uuid_of(device) == uuid:
                    return device
        elif pci_bus_id is not None:  # before CUDA 9.2
            found = ctypes.c_int()
            if self._raw("cuDeviceGetByPCIBusId", ctypes.byref(found), pci_bus_id.encode()) == _SUCCESS:
                return found.value
        raise DriverError(f"CUDA doesn't see GPU {uuid}: look whether CUDA_VISIBLE_DEVICES hides it")

    def context(self, device: int) -> Context:
        """A context on the device, to be entered by `with`."""
        return Context(self, device)

    def _devices(self) -> list[int]:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for ordinal in range(count.value):
            device = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(device), ordinal)
            found.append(device.value)
        return found

    def _uuid_of(self, device: int) -> str:
        raw = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid", raw, device)
        return f"GPU-{UUID(bytes=raw.raw)}"

    def _raw(self, function: str, *arguments: Any) -> int:
        try:
            entry = getattr(self._library, function)
        except AttributeError:
            raise DriverError(f"the CUDA driver has no {function}: it is too old, upgrade it") from None
        entry.restype, entry.argtypes = ctypes.c_int, _FUNCTIONS[function]
        return int(entry(*arguments))

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        if self._raw("cuGetErrorName", code, ctypes.byref(name)) != _SUCCESS or name.value is None:
            return f"error {code}"
        return name.value.decode(errors="replace")


class Context:
    """A context with memory; `held_bytes` of it are allocated and never touched."""

    def __init__(self, driver: CudaDriver, device: int) -> None:
        self._driver = driver
        self._device = device
        self._open = False
        self._blocks: list[tuple[int, int]] = []  # address, bytes

    def __enter__(self) -> Self:
        handle = ctypes.c_void_p()
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), self._device)
        self._open = True
        try:
            self._driver.call("cuCtxSetCurrent", handle)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def held_bytes(self) -> int:
        return sum(size for _, size in self._blocks)

    def hold(self, total_bytes: int) -> None:
        """Allocate what is missing to hold so many bytes. Raises DriverError when the GPU hasn't them."""
        missing = total_bytes - self.held_bytes
        if missing <= 0:
            return
        address = _device_memory()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), missing)
        self._blocks.append((address.value, missing))

    def close(self) -> None:
        """Give memory and context back. What a lost GPU refuses to take is gone with it: no error."""
        while self._blocks:
            address, _ = self._blocks.pop()
            self._quietly("cuMemFree_v2", address)
        if self._open:
            self._open = False
            self._quietly("cuCtxSetCurrent", None)
            # The first version of it is the one that drivers before 11.0 have.
            newer = "cuDevicePrimaryCtxRelease_v2"
            self._quietly(newer if self._driver.has(newer) else "cuDevicePrimaryCtxRelease", self._device)

    def _quietly(self, function: str, *arguments: Any) -> None:
        with contextlib.suppress(DriverError):
            self._driver.call(function, *arguments)


def _main(uuid: str, pci_bus_id: str) -> int:
    try:
        CudaDriver().device_of(uuid, pci_bus_id or None)
    except DriverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:3]))
