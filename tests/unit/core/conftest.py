"""Properties are about answers, not about how busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without-clock", deadline=None)
settings.load_profile("without-clock")
