"""Accuracies and similarities before and after fine-tuning, compared with values by hand."""

import numpy as np

from beyond.papers.dark_secrets import fine_tuning


def test_similarity_is_the_cosine_of_maps_as_vectors(run):
    before = np.array([[[[1, 0], [0.5, 0.5]]] * 3], dtype=np.float16)
    after = before.copy()
    after[0, 1:, 0] = [[0, 1]]
    after[0, 2, 1] = 0
    assert np.allclose(fine_tuning.map_similarity(before, after), [[1, 0.5 / 1.5, 0]])
    table = fine_tuning.similarity_table([run])
    assert len(table) == 3 * 4 and table["similarity"].between(0.1, 1 - 1e-9).all()
