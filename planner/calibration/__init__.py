"""Measured benchmark tables: reading them, predicting their rows, and calibrating to them."""
