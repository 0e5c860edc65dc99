"""The command line: each command a few lines over the public API.

A command's process seldom looks for cycles among its objects: modules that load and tables of half a million rows hold
few, and to look for them took a fifth of a run. That is said here, before anything else is loaded.
"""

import gc

gc.set_threshold(100_000, 50, 50)
