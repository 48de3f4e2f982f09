"""Revealing the Dark Secrets of BERT (Kovaleva et al., 2019): notebook 07."""
