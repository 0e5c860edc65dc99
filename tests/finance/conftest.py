from __future__ import annotations

from hypothesis import settings

# A property fails on what it finds, never on how busy the machine is.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
