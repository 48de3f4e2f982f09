"""Section 5 of the paper: the probing classifiers, and Table 3."""
