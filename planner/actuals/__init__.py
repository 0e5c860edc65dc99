"""Months that happened: read, compared with their plan, and a new forecast of the months to come."""
