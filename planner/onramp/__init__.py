"""From a user's files to a first scenario: request logs, their fit, and the scenario file."""
