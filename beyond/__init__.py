"""What goes beyond Clark et al. (2019): later papers, verdicts, lessons and pages.

It imports ``helpers``, which does not know it.
"""
