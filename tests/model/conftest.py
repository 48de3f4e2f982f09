import shutil

import pytest


@pytest.fixture
def bert_copy(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder("bert"), tmp_path / "bert")
