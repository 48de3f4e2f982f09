"""Pages of a run: the report, comparisons, and what a model supports."""
