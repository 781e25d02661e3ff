"""What telemetry read of one deployment: the values that predictions can be anchored to."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from .errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Readings of one model on one kind of GPU; None where there is none. Watts are of one GPU.

    ``context_idle_watts``: with the model resident and no request running. ``active_watts``: the mean while
    at least one request runs. ``duty``: the realised mean number of requests in the system (rate × time in
    it). ``itl_seconds``: the mean time between tokens at the load that is asked about. ``samples``: how many
    independent readings (say, minutes of steady load) the means are of.
    """

    context_idle_watts: float | None = None
    active_watts: float | None = None
    duty: float | None = None
    itl_seconds: float | None = None
    samples: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name != "samples":
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value <= 0:
                raise InvalidInput(
                    f"observed.{field.name}", f"{value!r} isn't a finite number above 0; leave it out instead"
                )
        idle, active = self.context_idle_watts, self.active_watts
        if idle is not None and active is not None and active < idle:
            raise InvalidInput(
                "observed.active_watts",
                f"{active} W is below the idle {idle} W; swap them, or leave out the one that's wrong",
            )
