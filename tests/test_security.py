"""Files from strangers cannot take the machine.

Ruff refuses `eval`, `exec` and pickles (S102, S301, S302, S307).  What a store may not do is in
``store/test_store.py``, what a page may not do in ``viewer/test_view.py``, models in ``model/``,
downloads in ``data/test_corpora.py``.
"""

import ast
from pathlib import Path

import pytest
from faults import at_most

from helpers.data.coreference import coreference_corpus
from helpers.data.treebank import treebank
from helpers.errors import CorpusError
from helpers.model import loading

PACKAGE = Path(loading.__file__).parent.parent
UNSAFE_OPTIONS = ("trust_remote_code", "allow_pickle")


def test_no_call_can_run_code_of_a_file():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) != "torch.load", path
            elif isinstance(node, ast.keyword) and node.arg in UNSAFE_OPTIONS:
                assert ast.unparse(node.value) == "False", path


def test_readers_find_a_long_cycle_of_heads_in_linear_time(tmp_path):
    words = 100_000
    rows = (f"{i}\tx\t_\tX\t_\t_\t{i % words + 1}\tdep\t_\t_" for i in range(1, words + 1))
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(rows), encoding="utf-8")
    for read in (treebank, coreference_corpus):
        with at_most(20), pytest.raises(CorpusError, match="circle"):
            read(path).records()
