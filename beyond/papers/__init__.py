"""Later papers, one subpackage each; the layers below know none."""

# What draws and what claims decides no cached result.
NOT_CACHED = ("claims.py", "claims.toml", "plots.py")
