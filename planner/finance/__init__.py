"""Pure arrays: depreciation, tariffs and the one ledger in which each dollar is written once."""
