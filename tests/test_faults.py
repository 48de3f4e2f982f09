"""The page of promises names tests that exist."""

import faults


def test_every_test_that_the_page_names_exists():
    files = faults.named_tests()
    assert len(files) > 20
    assert all((faults.ROOT / file).is_file() for file in files)
