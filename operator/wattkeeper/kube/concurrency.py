"""Several requests at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def all_of(*work: Awaitable[Any]) -> None:
    """Await all of it at the same time; when some of it fails, raises the error of the first in order."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
