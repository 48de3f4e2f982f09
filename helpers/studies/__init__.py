"""Later papers, one subpackage each; the layers below do not know them."""
