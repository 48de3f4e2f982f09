"""A page and a widget to look at one map."""
