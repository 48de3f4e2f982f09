"""Tables in, matplotlib figures out."""
