"""From what a user has to a first scenario: request logs, their fit, and the file that is written."""
