"""What a run means: monthly sums, the ledger, measures, tables."""
