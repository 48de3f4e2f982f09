"""The statements of the paper, and how each is tested with the tables of a run."""
