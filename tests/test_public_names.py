"""The names of ``import helpers``, and which package of that name is found."""

import subprocess
import sys

import pytest

import attention_notebooks
import helpers


def test_public_names_are_there_and_listed_and_imported_when_they_are_used():
    assert dir(helpers) == sorted(helpers.__all__)
    for name in helpers.__all__:
        assert getattr(helpers, name).__doc__, name
        assert getattr(attention_notebooks, name) is getattr(helpers, name)
    assert helpers.metrics.surface.token_types
    assert dir(attention_notebooks) == sorted(["main", *helpers.__all__])
    for package in (helpers, helpers.metrics, attention_notebooks):
        with pytest.raises(AttributeError, match="heds"):
            _ = package.heds
    code = "import sys, helpers; print({'numpy', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
