"""Which planner this is."""

from __future__ import annotations

__version__ = "0.2.0.dev0"
"""The one place of the version: pyproject.toml reads it here."""
