"""Examples may take as long as a busy machine makes them take: nothing here measures time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("guard", deadline=None)
settings.load_profile("guard")
