"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""
