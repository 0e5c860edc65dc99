"""The memo for the board: two pages of an output folder that decides something."""
