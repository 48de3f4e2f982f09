"""Later papers, one subpackage each; `registry` lists them, and the layers below know none."""
