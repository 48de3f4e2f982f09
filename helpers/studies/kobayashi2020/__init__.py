"""Norm lens, edge ablation, attribution (Kobayashi et al. 2020, Abnar and Zuidema 2020)."""
