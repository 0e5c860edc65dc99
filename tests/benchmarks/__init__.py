"""What the engine costs, as ratios within one run: ``make bench``."""
