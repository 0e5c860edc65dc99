"""The books of one run: what it bought, what was posted, and every figure of money read from the ledger."""
