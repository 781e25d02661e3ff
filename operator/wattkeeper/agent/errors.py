"""What can go wrong on a GPU node; every message ends with what to do.

AgentError
├── DriverError        the driver or the GPU can't be used, or doesn't tell what is needed
│   └── GpuLostError   it could, and now can't any more
├── NotAloneError      somebody else's work is on the GPU, or nothing tells that there is none
└── StoppedError       a signal told the process to end
"""

from __future__ import annotations


class AgentError(Exception):
    """The message is one line for people: what happened, and the cure."""


class DriverError(AgentError):
    """The driver or the GPU can't be used."""


class GpuLostError(DriverError):
    """The GPU stopped answering."""


class NotAloneError(AgentError):
    """The GPU isn't ours alone."""


class StoppedError(AgentError):
    """A signal told the process to end. `signal_number` is which."""

    def __init__(self, signal_number: int, name: str) -> None:
        super().__init__(f"stopped by {name}")
        self.signal_number = signal_number
