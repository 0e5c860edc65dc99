"""The report of an output folder: one HTML file that needs nothing else, built from the folder's own files."""
