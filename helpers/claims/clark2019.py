"""The claims of Clark et al. (2019), by section."""

from __future__ import annotations

from importlib import import_module

from helpers.claims.engine import Claim

SECTIONS = ("3", "4", "5", "6")


def paper_claims(section: str = "") -> list[Claim]:
    """List the claims of the paper; only the modules of the sections that are asked for are loaded.

    Parameters
    ----------
    section
        The beginning of the number of a section, for example "3" or "3.2"; by default all.  The
        claims of a section are tested together, so all of section 3 comes for "3.2".

    Returns
    -------
    list of Claim
    """
    claims = []
    for number in SECTIONS:
        if section[:1] in ("", number):
            module = import_module(f"helpers.claims.section{number}")
            claims += getattr(module, f"SECTION_{number}").claims
    return claims
