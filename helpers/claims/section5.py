"""Claims of section 5: how much syntax probes find in attention maps."""

from __future__ import annotations

from helpers.claims.engine import Family, Measure
from helpers.claims.tables import cell

SECTION_5 = Family("section 5")
claim = SECTION_5.claim


def probe_difference(minuend: str, subtrahend: str) -> Measure:
    """Make a measure that reads how many points a probe is above another."""
    return cell("probe_differences", "difference", probe=minuend, other=subtrahend)


claim(
    "5",
    "Attention alone is far better than right-branching",
    how_measured=(
        "UAS of Attn minus UAS of Right-branching, both without punctuation, points, on the same "
        "resamples of the dev articles; holds above 10"
    ),
    above=10,
    paper=35,  # Table 3: 61 less 26
    about_training=True,
)(probe_difference("Attn", "Right-branching"))

claim(
    "5",
    "Word vectors add to attention",
    how_measured=(
        "UAS of Attn + GloVe minus UAS of Attn, both without punctuation, points, on the same "
        "resamples of the dev articles; holds above 5"
    ),
    above=5,
    paper=16,  # Table 3: 77 less 61
)(probe_difference("Attn + GloVe", "Attn"))

claim(
    "5",
    "Distances and word vectors alone do worse",
    how_measured=(
        "UAS of Attn + GloVe minus UAS of Distances + GloVe, both without punctuation, points, on "
        "the same resamples of the dev articles; holds above 5"
    ),
    above=5,
    paper=19,  # Table 3: 77 less 58
    about_training=True,
)(probe_difference("Attn + GloVe", "Distances + GloVe"))

claim(
    "5",
    "Attention alone is better than distances and word vectors",
    how_measured=(
        "UAS of Attn minus UAS of Distances + GloVe, both without punctuation, points, on the same "
        "resamples of the dev articles; holds above 0"
    ),
    above=0,
    paper=3,  # Table 3: 61 less 58
    about_training=True,
)(probe_difference("Attn", "Distances + GloVe"))

claim(
    "5",
    "Attention of random weights does far worse",
    how_measured=(
        "UAS of Attn + GloVe minus UAS of Random-init Attn + GloVe, both without punctuation, "
        "points, on the same resamples of the dev articles; holds above 10 (control: one draw of "
        "them minus all)"
    ),
    above=10,
    paper=47,  # Table 3: 77 less 30
    about_training=True,
)(probe_difference("Attn + GloVe", "Random-init Attn + GloVe"))

claim(
    "5",
    "Hidden states hold not much more syntax than attention maps",
    how_measured=(
        "UUAS of Structural probe minus the share of edges that Attn + GloVe finds (either word is "
        "the other's predicted head), both without punctuation, points, on the same resamples of "
        "the dev articles; holds below 10 (control: the embeddings, which random weights share, "
        "minus its maps)"
    ),
    below=10,
    paper=3,  # Table 3: 80 less 77
)(probe_difference("Structural probe", "Attn + GloVe"))
