"""Sections 3 to 6 of the paper: arrays and records in, tables out; knows no model."""
