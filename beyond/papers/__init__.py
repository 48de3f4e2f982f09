"""Later papers, one subpackage each; the layers below know none."""

from importlib import import_module

# What draws and what claims decides no cached result.
NOT_CACHED = ("claims.py", "claims.toml", "plots.py")
PAPERS = ("dark_secrets", "sixteen_heads", "argument_cues", "sinks", "accuracy_and_function")


def later_claims() -> list:
    """List the claims of all later papers, in the order of the notebooks."""
    claims = []
    for paper in PAPERS:
        claims += import_module(f"beyond.papers.{paper}.claims").CLAIMS
    return claims
