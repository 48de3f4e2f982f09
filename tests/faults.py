"""How much the fault tests break: a short form in the suite, the long one by ``make faults``.

Run as a program, it runs the tests that FAULTS.md names in the long form.  A test says what it
found with ``record_property("found", ...)``.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "FAULTS.md"
LONG = os.environ.get("FAULTS") == "long"
KILLS = 30 if LONG else 2  # of each kind that takes a second
SLOW_KILLS = 30 if LONG else 1  # of each kind that takes several
FILES = 3000 if LONG else 100  # a reader


@contextmanager
def at_most(seconds):
    """Fail where something computes for more than some seconds."""

    def stop(_signal, _frame):
        raise AssertionError(f"took longer than {seconds} s")

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


class Findings:
    """A plugin of pytest that prints what the tests found."""

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            for name, text in report.user_properties:
                if name == "found":
                    print(f"\n{text}", flush=True)


def named_tests():
    """List the test files that the page names, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return list(dict.fromkeys(re.findall(r"`(tests/[\w/]+\.py)`", text)))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="part of a test file's name, or several|parts")
    only = options.parse_args().only
    os.environ["FAULTS"] = "long"
    files = [file for file in named_tests() if re.search(only, file)]
    addopts = "addopts=-q --strict-markers --import-mode=importlib"
    sys.exit(pytest.main(["-o", addopts, f"--rootdir={ROOT}", *files], plugins=[Findings()]))


if __name__ == "__main__":
    main()
