"""Claims as a TOML file declares them: ids, thresholds, and numbers of the paper by name."""

import re

import pytest

from beyond.claims.claim import Claim, add_up, read_claims
from helpers.metrics.reference import paper_numbers
from helpers.metrics.statistics import exact

DECLARED = """
[sec9-one]
family = "section 9"
section = "9.1"
statement = "One is more than nothing"
above = 0
unit = "share"
how_measured = """
FIELDS = {
    "id": "sec9-one", "family": "section 9", "section": "9", "statement": "A",
    "measure": exact, "how_measured": "", "unit": "share",
}  # fmt: skip


def measure_one(tables):
    return exact(1)


def read(folder, text, **options):
    """Read claims from a text; there is a measure for the claim sec9-one."""
    path = folder / "claims.toml"
    path.write_text(text)
    return read_claims(path, {"sec9-one": measure_one}, **options)


def test_a_declared_claim_has_its_measure_and_texts_on_one_line(tmp_path):
    text = DECLARED + '"""\nthe number\n  one"""\nabout_training = true'
    (claim,) = read(tmp_path, text)
    assert (claim.id, claim.section, claim.family) == ("sec9-one", "9.1", "section 9")
    assert claim.how_measured == "the number one"
    assert (claim.threshold, claim.sign) == (0, 1)
    assert claim.about_training and not claim.is_exploratory
    assert claim.measure is measure_one


def test_a_threshold_and_the_papers_number_may_be_named(tmp_path):
    text = DECLARED.replace("above = 0", 'below = "most"\npaper = "b minus a"') + '""'
    (claim,) = read(tmp_path, text, thresholds={"most": len}, paper_numbers={"a": 0.2, "b": 0.5})
    assert (claim.threshold, claim.sign, claim.paper) == (len, -1, 0.3)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("sec9-one", "sec9-two", "claims without a measure: sec9-two"),
        ("[sec9-one]", "[sec9-one]\nstatment = 'A'", "claim sec9-one: .*statment"),
        ("above = 0", "", "claim sec9-one: give either 'above' or 'below'"),
        ("above = 0", "above = 0\nbelow = 1", "claim sec9-one: give either 'above' or 'below'"),
        ("above = 0", "above = 'most'", "claim sec9-one: 'most' is not among the names"),
        ("above = 0", "above = 0\npaper = 'a'", "claim sec9-one: 'a' is not among the names"),
        ('"share"', '"points"', "claim sec9-one: unit 'points'; expected one of share, "),
        ("above = 0", "above = 0\nthreshold_source = 'us'", "threshold_source 'us'"),
    ],
)
def test_read_claims_names_the_claim_that_is_wrong(tmp_path, old, new, problem):
    text = DECLARED.replace(old, new) + '""'
    with pytest.raises(ValueError, match=rf"claims\.toml: .*{problem}"):
        read(tmp_path, text)


def test_a_claim_about_training_shows_the_numbers_of_its_controls():
    with pytest.raises(ValueError, match="about_training needs the numbers of the controls"):
        Claim(**FIELDS, above=0, about_training=True, shows_controls=False)


def test_every_measure_needs_a_claim(tmp_path):
    with pytest.raises(ValueError, match="measures without a claim: sec9-one"):
        read(tmp_path, "")


def test_a_claim_in_python_needs_one_threshold():
    assert Claim(**FIELDS, below=1).sign == -1
    with pytest.raises(ValueError, match=re.escape("claim sec9-one: give either 'above'")):
        Claim(**FIELDS)


def test_numbers_of_the_paper_are_added_up_without_noise():
    numbers = paper_numbers()
    assert add_up("table1.det.accuracy minus table1.det.baseline", numbers) == 42.6
    assert add_up("table3.Attn + GloVe", numbers) == 77
    nominal = "table2.head.nominal minus table2.head match.nominal"
    assert add_up(f"{nominal} minus table2.head.all plus table2.head match.all", numbers) == 5
