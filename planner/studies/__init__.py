"""Repeated runs: sampling, the runner, the result store, sensitivity."""
