"""Months that happened, held against the plan they were planned by."""
