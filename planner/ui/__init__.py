"""The live page: a scenario's settings beside its report, on this machine alone."""
