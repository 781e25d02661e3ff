"""Where requests for one model wait, within its limits and those of the whole process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from wattkeeper.activator.exchange import Exchange
from wattkeeper.core.activation import Held, QueueFull, QueueLimits, admits
from wattkeeper.core.refusals import Refusal


class Budget:
    """Bytes that may wait in the whole process."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.max_bytes


class Ticket:
    """One request's place. `call` is set once: None to go on, or a refusal."""

    __slots__ = ("call", "owed_bytes", "size_bytes")

    def __init__(self, size_bytes: int, owed_bytes: int, call: asyncio.Future[Refusal | None]) -> None:
        self.size_bytes = size_bytes
        self.owed_bytes = owed_bytes  # of `size_bytes`: announced, and not read yet
        self.call = call


class WaitingRoom:
    """Tickets in the order in which they came."""

    def __init__(self, limits: QueueLimits, budget: Budget) -> None:
        self.limits = limits
        self._budget = budget
        self._tickets: dict[Exchange, Ticket] = {}
        self._size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._tickets)

    @property
    def held(self) -> Held:
        return Held(len(self._tickets), self._size_bytes)

    def enter(self, exchange: Exchange) -> Ticket | QueueFull:
        """A place for a request and for all of the body that it announced, or the limit that is reached."""
        head = exchange.head
        head_bytes = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        body_bytes = max(exchange.received_bytes, head.content_length or 0)
        full = self._full(head_bytes + body_bytes, new=True)
        if full is not None:
            return full
        call = asyncio.get_running_loop().create_future()
        ticket = Ticket(head_bytes + body_bytes, body_bytes - exchange.received_bytes, call)
        self._tickets[exchange] = ticket
        self._add(ticket.size_bytes)
        return ticket

    def grow(self, exchange: Exchange, size_bytes: int) -> QueueFull | None:
        """More of a waiting request's body has come."""
        ticket = self._tickets.get(exchange)
        if ticket is None:
            return None
        paid = min(size_bytes, ticket.owed_bytes)
        ticket.owed_bytes -= paid
        more = size_bytes - paid
        if more == 0:
            return None
        full = self._full(more, new=False)
        if full is None:
            ticket.size_bytes += more
            self._add(more)
        return full

    def leave(self, exchange: Exchange) -> None:
        ticket = self._tickets.pop(exchange, None)
        if ticket is not None:
            self._add(-ticket.size_bytes)
            ticket.call.cancel()

    def call_all(self, refusal: Refusal | None = None) -> None:
        """Tell everybody who waits to go on, or that waiting is no use."""
        for ticket in self._tickets.values():
            if not ticket.call.done():
                ticket.call.set_result(refusal)

    @contextmanager
    def place(self, exchange: Exchange) -> Iterator[Ticket | QueueFull]:
        """A ticket, given back at the end whatever happens."""
        try:
            yield self.enter(exchange)
        finally:
            self.leave(exchange)

    def _full(self, size_bytes: int, *, new: bool) -> QueueFull | None:
        full = admits(self.held, size_bytes, self.limits, new)
        if full is None and not self._budget.fits(size_bytes):
            return QueueFull.BYTES
        return full

    def _add(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._budget.used_bytes += size_bytes
