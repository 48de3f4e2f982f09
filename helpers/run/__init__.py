"""Whole runs: notebooks, report, comparison, and what is on this machine."""
