"""The page of promises: its tests exist, and its figures are those of a run of the long form."""

import re
import subprocess
import sys

import faults
import pytest

TEXT = faults.PAGE.read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there():
    files = faults.named("".join(faults.prose(TEXT)))
    assert len(files) > 20
    assert [file for file in files if not (faults.ROOT / file).is_file()] == []


@pytest.mark.parametrize("passes", [True, False])
def test_only_a_whole_run_writes(passes, tmp_path):
    """The program on a page of its own, whose only test passes or not."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "helpers").symlink_to(faults.ROOT / "helpers")
    source = (faults.ROOT / "tests" / "faults.py").read_text(encoding="utf-8")
    (tmp_path / "tests" / "faults.py").write_text(source)
    (tmp_path / "tests" / "test_a.py").write_text(
        "import faults\n"
        "def test_a(record_property):\n"
        "    record_property('found', f'{faults.KILLS} kills')\n"
        f"    assert {passes}\n"
    )
    page = tmp_path / "tests" / "FAULTS.md"
    page.write_text(f"`tests/test_a.py` holds.\n{faults.BEGIN}\nwhat was\n{faults.END}\nThe end.\n")
    before = page.read_text()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "tests" / "faults.py")], cwd=tmp_path, capture_output=True
    )
    assert (done.returncode == 0) == passes
    if passes:
        assert "| `tests/test_a.py` | 1 passed | 0 s | 30 kills |\n" in page.read_text()
        assert "what was" not in page.read_text() and "The end." in page.read_text()
    else:
        assert page.read_text() == before


def test_the_figures_are_of_the_long_form_and_all_passed():
    written = TEXT.partition(faults.BEGIN)[2].partition(faults.END)[0]
    assert re.search(r"^\d{4}-\d\d-\d\d, commit [0-9a-f]{12}(-dirty)?, ", written, re.MULTILINE)
    assert "30 kills of each kind, 3,000 files a reader" in written
    rows = re.findall(r"^\| `(\S+)` \| ([^|]+) \|", written, re.MULTILINE)
    assert [file for file, _ in rows] == faults.named("".join(faults.prose(TEXT)))
    assert all(re.fullmatch(r"[\d,]+ passed(, \d+ skipped)?", outcome) for _, outcome in rows)
    assert len(re.findall(r"30 kills", written)) >= 6  # the kinds, and the conditions
    assert len(re.findall(r"files read, [\d,]+ refused", written)) == 14
