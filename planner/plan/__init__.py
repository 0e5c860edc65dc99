"""A scenario and the catalogue, compiled once into the arrays that a run reads."""
