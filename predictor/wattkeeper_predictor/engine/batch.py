"""How many sequences share a step, and what a request sees of it.

*Server*: requests arrive at random; one finds, by Little's law, ``rate × output × ITL`` others at work, and
the ITL follows from that number. The fixed point is approached from below, so that each iterate, and so the
answer, never falls with the load and never rises with a faster GPU. *Offline*: memory decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .capacity import capacity
from .columns import Columns
from .parameters import StepParameters
from .step import StepTerms, prompt_seconds, step_terms

Array = NDArray[np.float64]
# Fixed, never broken off early: each iterate is monotone in the load and in the GPU's figures.
ITERATIONS = 16


@dataclass(frozen=True, slots=True)
class Steady:
    """The engine at its load; arrays of shape (n,), times in seconds.

    ``itl``: mean time between two tokens of a request; ``per_token``: a request's whole time over its tokens,
    which counts the wait for the first one; ``step``: the step without prompts, which is the median;
    ``single``: the step of a sequence alone. ``inverse_throughput``: time a generated token of the
    whole engine. ``running``: sequences in a step. ``demand``: the mean number that the load keeps at work
    (0 offline); ``overload``: demand over what can run at once: from 1 on, requests pile up.
    """

    itl: Array
    per_token: Array
    step: Array
    single: Array
    inverse_throughput: Array
    first_token: Array
    running: Array
    demand: Array
    overload: Array
    terms: StepTerms


def steady(p: StepParameters, c: Columns, iterations: int = ITERATIONS) -> Steady:
    """Solve for the batch and say what follows from it; fits may do with fewer iterations."""
    room = capacity(c)
    ceiling = np.maximum(room.running, 1.0)
    given = ~np.isnan(c.fixed_batch)
    server = (c.offline == 0) & ~given
    batch = np.where(given, c.fixed_batch, np.where(server, 1.0, _offline_batch(p, c, ceiling)))
    terms, itl = _itl(p, c, batch)
    if server.any():
        batch, terms, itl = _fixed_point(p, c, batch, server, ceiling, iterations)
    step = terms.total()
    per_token = itl + p.first_token / c.output
    demand = np.where(server, c.rate * c.output * per_token, 0.0)
    return Steady(
        itl=itl,
        per_token=per_token,
        step=step,
        single=step_terms(p, c, np.ones(len(c))).total(),
        inverse_throughput=_inverse_throughput(c, itl, batch, server, demand / ceiling),
        first_token=_first_token(p, c, step),
        running=batch,
        demand=demand,
        overload=demand / ceiling,
        terms=terms,
    )


def _fixed_point(  # noqa: PLR0913, PLR0917 - the state it moves
    p: StepParameters,
    c: Columns,
    batch: Array,
    server: NDArray[np.bool_],
    ceiling: Array,
    iterations: int,
) -> tuple[Array, StepTerms, Array]:
    terms, itl = _itl(p, c, batch)
    for _ in range(iterations):
        met = np.clip(1 + p.occupancy * c.rate * (c.output * itl + p.first_token), 1, ceiling)
        batch = np.where(server, met, batch)
        terms, itl = _itl(p, c, batch)
    return batch, terms, itl


def _itl(p: StepParameters, c: Columns, batch: Array) -> tuple[StepTerms, Array]:
    """Terms of a step, and the mean time between tokens.

    Each finished sequence is followed by another, whose prompt a step carries: batch ÷ output prompts a step.
    """
    terms = step_terms(p, c, batch)
    return terms, terms.total() + batch / c.output * prompt_seconds(p, c)


def _offline_batch(p: StepParameters, c: Columns, ceiling: Array) -> Array:
    """Mean batch: the ceiling while the queue lasts, fewer in the tail of a finite one."""
    endless = np.isinf(c.queue)
    queue = np.where(endless, 1.0, c.queue)
    most = np.minimum(ceiling, queue)
    waves = queue * c.output / most
    tail = p.tail * np.maximum(c.longest_output - c.output, 0) * (queue > most)
    steps = np.maximum(c.longest_output, waves + tail)
    return np.where(endless, ceiling, np.maximum(queue * c.output / steps, 1e-3))


def _inverse_throughput(
    c: Columns, itl: Array, batch: Array, server: NDArray[np.bool_], overload: Array
) -> Array:
    """Offline and at a given batch the engine's; a server generates what it is asked for, while it can."""
    with np.errstate(divide="ignore"):
        asked = 1 / (c.rate * c.output)
    return np.where(server & (overload < 1), asked, itl / batch)


def _first_token(p: StepParameters, c: Columns, step: Array) -> Array:
    """Scheduling, the prompt's own work and the step that yields the token, with waiting for other prompts.

    Prompts are read one after another: an M/D/1 queue at the rate they arrive.
    """
    own = prompt_seconds(p, c)
    busy = np.clip(c.rate * own, 0, 0.99)
    return p.first_token + own * (1 + busy / (2 * (1 - busy))) + step
