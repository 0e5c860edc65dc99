"""Pure arrays: routing, utilisation, backlog, power cap over a window of hours."""
