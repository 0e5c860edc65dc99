"""Mutants that survived and are no wrongs: the program does the same with them. By name, with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
