"""Tables, CSV and reference pages; functions of a finished run, nothing else."""
