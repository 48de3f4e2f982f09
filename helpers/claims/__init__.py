"""Statements of the paper, and how each is tested with the tables of a run.

`engine` declares and tests claims, `tables` reads numbers from tables, and a module for each
section has the paper's claims; `clark2019.CLAIMS` lists them all.
"""
