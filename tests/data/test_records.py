import pytest

from helpers.data.records import cluster_of


@pytest.mark.parametrize(
    ("record", "article"),
    [
        ({"title": "Paris, Texas"}, "Paris, Texas"),
        ({"source": "Paris, Texas, paragraph 12, sentence 3"}, "Paris, Texas"),
        (
            {"source": "en-dev.conllu:weblog-a.com_20041117-0012"},
            "en-dev.conllu:weblog-a.com_20041117",
        ),
        ({"source": "wsj.txt:12"}, "wsj.txt:12 7"),
        ({"title": "", "source": ""}, " 7"),
        ({}, " 7"),
    ],
)
def test_a_record_is_from_its_article_or_stands_for_itself(record, article):
    assert cluster_of(record, 7) == article
