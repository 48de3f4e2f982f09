"""Statements of the paper, and how each is tested with the tables of a run.

`engine` declares and tests claims, `tables` reads numbers from tables, and a module for each
section has the paper's claims, which `clark2019.CLAIMS` lists.  `display` shows claims in
four columns, and `power` computes what effects their tests find.
"""
