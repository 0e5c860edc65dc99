"""Results of a run: monthly sums, the ledger, measures, tables."""
