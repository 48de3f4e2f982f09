"""The registry knows every study, and checks what only studies read."""

from importlib import import_module
from pathlib import Path

from beyond import papers
from beyond.papers import registry


def test_later_claims_are_those_of_every_paper():
    folder = Path(papers.__file__).parent
    expected = []
    for path in folder.glob("*/claims.py"):
        module = import_module(f"beyond.papers.{path.parent.name}.claims")
        expected += [claim.statement for claim in module.CLAIMS]
    claims = [claim.statement for claim in registry.later_claims()]
    assert sorted(claims) == sorted(expected)
    assert len(set(claims)) == len(claims)
