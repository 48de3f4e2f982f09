"""Long texts at several lengths: the measures are those of their whole maps."""

import numpy as np
import pytest

from beyond.papers.common.classifier import text_inputs
from beyond.papers.sinks import lengths
from helpers.data.records import Visible, roles, visible_mask
from helpers.data.wikipedia import Article
from helpers.metrics import surface
from helpers.model.forward import forward

PARAGRAPH = "The cat sat on the mat, and the dog watched it. "
LONG = Article("Cats", (3 * PARAGRAPH, 3 * PARAGRAPH))
OTHER = Article("Dogs", (6 * PARAGRAPH[4:],))
SHORT = Article("Cat", (PARAGRAPH,))
GROUP = (1, 2)


def section_3(encoder, article, length):
    """Compute the measures of a text from its whole maps."""
    (inputs,) = text_inputs(encoder, [("\n\n".join(article.paragraphs),)], length)
    maps, _ = forward(encoder, [inputs])
    attention = np.concatenate([layer.numpy() for layer in maps])
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    visible = np.stack([visible_mask(Visible(**layer), length) for layer in encoder.visible])
    return surface.section_3(attention, roles(tokens, encoder.special_tokens), visible)


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
def test_length_table_has_the_means_of_whole_maps(tiny_encoder, family, own_cache):
    encoder = tiny_encoder(family)
    texts = [LONG, OTHER, SHORT]
    table = lengths.length_table(encoder, texts, GROUP, (16, 40, 1000))  # it takes 64 at most
    rows = table.set_index(["tokens", "layer"])
    assert set(table["tokens"]) == {16, 40}
    assert rows.loc[(40, "all"), "texts"] == 2  # one text is shorter
    by_text = [section_3(encoder, article, 40) for article in (LONG, OTHER)]
    first = np.array([values["first"] for values in by_text])
    assert rows.loc[(40, "all"), "first"] == pytest.approx(first.mean(), abs=1e-5)
    assert rows.loc[(40, "2-3"), "first"] == pytest.approx(first[:, 1:].mean(), abs=1e-5)
    relative = [values["entropy"] / values["uniform"] for values in by_text]
    assert rows.loc[(40, "all"), "relative_entropy"] == pytest.approx(np.mean(relative), abs=1e-5)
    means = first.mean(axis=(1, 2))
    width = 12.706 * np.abs(np.diff(means))[0] / 2  # Student's t of two texts
    assert rows.loc[(40, "all"), "first_high"] == pytest.approx(means.mean() + width, rel=1e-3)


def test_long_texts_are_the_longest_and_a_text_of_a_user_is_one(tmp_path):
    for name in "abcdef":
        (tmp_path / f"{name}.txt").write_text("abcdef".index(name) * PARAGRAPH + PARAGRAPH)
    assert [text.title[0] for text in lengths.long_texts(tmp_path)] == list("fedcb")
    path = tmp_path / "own.txt"
    path.write_text(f"{PARAGRAPH}\n\n{PARAGRAPH}\n")
    (text,) = lengths.whole_text(str(path))
    assert len(text.paragraphs) == 2
