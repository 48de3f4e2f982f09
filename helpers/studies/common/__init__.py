"""Tasks, fine-tuning, and heads or edges taken out: the code that several studies share."""
