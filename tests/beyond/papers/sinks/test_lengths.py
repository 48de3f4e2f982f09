"""One text at several lengths: the measures are those of its whole maps."""

import numpy as np
import pytest

from beyond.papers.common.classifier import text_inputs
from beyond.papers.sinks.lengths import COLUMNS, long_article, measures_by_length
from helpers.data.records import roles
from helpers.data.visible import Visible, visible_mask
from helpers.data.wikipedia import Article
from helpers.errors import InputError
from helpers.metrics import surface
from helpers.metrics.heads import by_head
from helpers.model.forward import forward

PARAGRAPH = "The cat sat on the mat, and the dog watched it. "
ARTICLE = Article("Cats", (3 * PARAGRAPH, 3 * PARAGRAPH))


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
def test_measures_by_length_are_those_of_whole_maps(tiny_encoder, family, own_cache):
    encoder = tiny_encoder(family)
    table = measures_by_length(encoder, ARTICLE, (16, 40, 1000))  # it takes 64 tokens at most
    assert sorted(set(table["tokens"])) == [16, 40]
    (inputs,) = text_inputs(encoder, [("\n\n".join(ARTICLE.paragraphs),)], 40)
    maps, _ = forward(encoder, [inputs])
    attention = np.concatenate([layer.numpy() for layer in maps])
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    visible = np.stack([visible_mask(Visible(**layer), 40) for layer in encoder.visible])
    token_roles = roles(tokens, encoder.special_tokens)
    expected = surface.section_3(attention, token_roles, visible)
    rows = table[table["tokens"] == 40]
    for name in COLUMNS:
        np.testing.assert_allclose(by_head(rows, name), expected[name], rtol=0, atol=1e-5)


def test_a_text_that_is_too_short_is_refused(encoder, own_cache):
    with pytest.raises(InputError, match="fewer than 40 tokens"):
        measures_by_length(encoder, Article("Cat", ("a cat",)), (40, 60))


def test_long_article_is_the_first_that_is_long_enough(tmp_path):
    for name, times in {"a": 1, "b": 40, "c": 60}.items():
        (tmp_path / f"{name}.txt").write_text(times * PARAGRAPH)
    assert long_article(tmp_path, 40).title == "b.txt"
    assert long_article(tmp_path, 4000).title == "c.txt"  # the longest
