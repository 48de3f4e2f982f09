"""The figures of later papers: an edit here computes no study again."""
