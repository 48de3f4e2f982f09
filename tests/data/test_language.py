"""Is a text English?"""

from itertools import chain

import pytest
from toy_corpora import PARAGRAPHS

from helpers.data.text_files import is_english
from helpers.data.wikipedia import SAMPLE, articles

# Written for this test.
OTHER_LANGUAGES = {
    "German": "Der Fluss war in diesem Jahr so hoch, dass man am Ufer nicht mehr gehen konnte. Die "
    "Kinder sahen an einem Morgen, wie das Wasser in den Garten kam, und riefen den Vater.",
    "Dutch": "De rivier was in dat jaar zo hoog dat men niet meer langs het water kon lopen. Op "
    "een morgen zagen de kinderen hoe het in de tuin kwam, en zij riepen hun vader.",
    "French": "Cette année-là, la rivière était si haute que l'on ne pouvait plus marcher au bord. "
    "Un matin, les enfants ont vu comment elle entrait dans le jardin.",
    "Turkish": "O yıl nehir o kadar yüksekti ki kıyıda yürümek mümkün değildi. Bir sabah çocuklar "
    "suyun bahçeye girdiğini gördüler ve babalarını çağırdılar.",
    "Chinese": "那一年河水很高，人们不能在岸边行走。一天早上，孩子们看见水流进了花园。",
}


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
def test_is_english_of_other_languages(language):
    text = OTHER_LANGUAGES[language]
    assert not is_english([text])


def test_is_english_of_english_prose():
    assert is_english(chain.from_iterable(PARAGRAPHS))
    assert is_english(next(articles(SAMPLE)).paragraphs)
    assert is_english([])
    assert is_english(["Alas, poor Yorick!"])


@pytest.mark.parametrize(("frequent", "english"), [(2, True), (1, False)])
def test_is_english_counts_frequent_words(frequent, english):
    """Two of twenty words are a tenth."""
    words = ["The"] * frequent + ["cat"] * (20 - frequent)
    assert is_english([" ".join(words)]) == english
