"""The page of promises: its tests exist, and its figures are those of a run of the long form."""

import re

import faults

TEXT = faults.PAGE.read_text(encoding="utf-8")


def test_the_figures_are_of_the_long_form_of_every_test_that_is_named_and_all_passed():
    files = faults.named("".join(faults.prose(TEXT)))
    assert len(files) > 20 and all((faults.ROOT / file).is_file() for file in files)
    written = TEXT.partition(faults.BEGIN)[2].partition(faults.END)[0]
    assert "30 kills of each kind, 3,000 files a reader" in written
    rows = re.findall(r"^\| `(\S+)` \| ([^|]+) \| \d+ s \| [0-9a-f]{12} \|", written, re.MULTILINE)
    assert [file for file, _ in rows] == files
    assert all(re.fullmatch(r"[\d,]+ passed(, \d+ skipped)?", outcome) for _, outcome in rows)
