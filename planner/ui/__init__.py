"""The live page: a scenario's knobs beside its report, on this machine alone."""
