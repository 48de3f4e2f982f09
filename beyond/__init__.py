"""Later papers, verdicts, solutions and pages: the part that goes beyond Clark et al. (2019).

It imports ``helpers``, which does not know it.
"""
