"""The scenario format: its models, its loader and its error messages."""
