"""What is no part of a run: reference pages, probe, benchmark tables and their fit, traffic fitting."""
