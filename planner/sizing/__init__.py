"""Sizing: the cheapest purchases and retirements that meet the SLO target, confirmed by simulation."""
