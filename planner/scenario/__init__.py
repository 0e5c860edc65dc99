"""What a user may write: the scenario language, its loader and its error messages."""
