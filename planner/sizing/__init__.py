"""Sizing: the cheapest purchases and retirements that meet the SLO target, found and confirmed by simulation."""
