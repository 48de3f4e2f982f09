"""Later papers, one subpackage each; `registry` lists them, and the layers below know none."""

# What draws and what claims decides no cached result.
NOT_CACHED = ("claims.py", "claims.toml", "plots.py")
