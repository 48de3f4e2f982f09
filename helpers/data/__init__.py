"""Text and annotations in; knows no model."""
