"""What the activator needs of the operator: nothing more passes between them.

The operator gives routing tables to `Activator.swap`, whole ones, whenever anything in them changes; the
activator tells the leader by this port. Both ways are level-triggered: what is lost is said again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wattkeeper.core.activation import ModelKey, Standing


class Leader(Protocol):
    """The operator that decides. Any exception means 'not told'; it is told again within a second."""

    async def demand(self, model: ModelKey, epoch: int) -> None:
        """Requests wait for this model, or were refused because they couldn't wait.

        Called at once for the first request of a burst and every second while it lasts, with the epoch of
        the newest table.
        """

    async def report(self, standings: Sequence[Standing]) -> None:
        """How every model stands here, every second and at once when something is waited for: a model that
        is told to hold has nothing in flight any more, or one that is being withdrawn sees a request."""
