"""Attention maps on disk, in shards."""
