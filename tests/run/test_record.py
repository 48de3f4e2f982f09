"""What ``run.json`` says of a run."""

import subprocess

from helpers.run import record


def test_the_commit_is_marked_where_the_code_differs_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "project_root", lambda: tmp_path)
    assert record._commit() is None  # no repository
    (tmp_path / "helpers").mkdir()
    (tmp_path / "figures").mkdir()
    for name in ("helpers/code.py", "requirements.txt", "figures/table.csv"):
        (tmp_path / name).write_text("1\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = record._commit()
    assert len(clean) == 12
    (tmp_path / "figures/table.csv").write_text("2\n")
    assert record._commit() == clean
    (tmp_path / "helpers/code.py").write_text("2\n")
    assert record._commit() == f"{clean}-dirty"
