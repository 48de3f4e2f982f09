"""How much the fault tests break: a short form in the suite, the long one by ``make faults``.

Run as a program, it runs the tests that FAULTS.md names in the long form and writes what they
found, each row with its commit, into the part of that file between two marks.  A test says what it
found with ``record_property("found", ...)``.  Where a test fails, nothing is written.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import sys
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "FAULTS.md"
BEGIN = "<!-- written by `make faults` -->"
END = "<!-- end of what it wrote -->"
LONG = os.environ.get("FAULTS") == "long"
KILLS = 30 if LONG else 3  # of each kind that takes a second
SLOW_KILLS = 30 if LONG else 1  # of each kind that takes several
FILES = 3000 if LONG else 250  # a reader


@contextmanager
def at_most(seconds):
    """Fail where something computes for more than some seconds, or waits for twelve times them."""

    def stop(_signal, _frame):
        raise AssertionError(f"took longer than {seconds} s")

    limits = [(signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 12)]
    handlers = [signal.signal(number, stop) for number, _, _ in limits]
    for _, timer, times in limits:
        signal.setitimer(timer, seconds * times)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(limits, handlers, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


class Findings:
    """The outcomes, durations and findings that pytest reports, by test file."""

    def __init__(self):
        self.outcomes = defaultdict(lambda: defaultdict(int))
        self.seconds = defaultdict(float)
        self.findings = defaultdict(list)

    def pytest_runtest_logreport(self, report):
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        if report.when == "call" or report.skipped:
            self.outcomes[file][report.outcome] += 1
            self.findings[file] += [
                text for name, text in report.user_properties if name == "found"
            ]


def named(text):
    """The test files that a page names, in order."""
    return list(dict.fromkeys(re.findall(r"`(tests/[\w/]+\.py)`", text)))


def prose(text):
    """A page without what was written into it."""
    before, _, rest = text.partition(BEGIN)
    return before, rest.partition(END)[2]


def row(findings, file, commit):
    counts = ", ".join(f"{n:,} {outcome}" for outcome, n in findings.outcomes[file].items())
    details = "<br>".join(findings.findings[file])
    return f"| `{file}` | {counts} | {findings.seconds[file]:.0f} s | {commit} | {details} |"


def page(text, findings, files, commit):
    """The page with the figures of a run in their place; other rows stay as they are."""
    before, after = prose(text)
    rows = {named(line)[0]: line for line in text.splitlines() if line.startswith("| `tests/")}
    rows |= {file: row(findings, file, commit) for file in files}
    written = [rows[file] for file in named(before + after) if file in rows]
    conditions = (
        f"Python {platform.python_version()}, {os.cpu_count()} cores; each row is of the commit "
        f"that it names: {SLOW_KILLS} kills of each kind, {FILES:,} files a reader."
    )
    table = ["| test | outcome | time | commit | found |", "|---|---|---|---|---|", *written]
    return "\n".join([f"{before}{BEGIN}", conditions, "", *table, f"{END}{after}"])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="part of a test file's name, or several|parts")
    only = options.parse_args().only
    os.environ["FAULTS"] = "long"
    text = PAGE.read_text(encoding="utf-8")
    files = [file for file in named("".join(prose(text))) if re.search(only, file)]
    findings = Findings()
    addopts = "addopts=-q --strict-markers --import-mode=importlib"
    if status := pytest.main(["-o", addopts, f"--rootdir={ROOT}", *files], plugins=[findings]):
        sys.exit(status)
    import faults as long_form

    from helpers.results import git_commit

    PAGE.write_text(long_form.page(text, findings, files, git_commit()), encoding="utf-8")


if __name__ == "__main__":
    main()
