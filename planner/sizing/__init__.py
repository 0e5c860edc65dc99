"""Sizing: the cheapest purchases and retirements that keep the promise, found and confirmed by simulation."""
