"""The only place that imports SimPy: processes, the change log, the window driver."""
