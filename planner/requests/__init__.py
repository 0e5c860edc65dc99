"""One hour of a run, request by request."""
