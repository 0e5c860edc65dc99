"""One hour, request by request: arrivals, a router, and replicas that batch continuously."""
