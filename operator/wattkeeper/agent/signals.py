"""Signals as exceptions, so that `with` and `finally` release what a process holds."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from wattkeeper.agent.errors import StoppedError

#: A process that is PID 1 of a container ignores those that it doesn't handle.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise StoppedError in the main thread at the first signal that asks to end.

    Further ones are ignored from then on, so that what is being released is released to the end.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise StoppedError(number, signal.Signals(number).name)

    before = {each: signal.signal(each, stop) for each in ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
