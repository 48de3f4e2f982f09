"""Write the bundled sample of Wikipedia, ``helpers/data/wikipedia-sample.txt.bz2``, again.

It is the cleaned text of the dump that gensim ships; ``pip install gensim defusedxml``
brings what this script needs.  The titles of the articles are listed beside it.
"""

import bz2
import sys
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.data.wikipedia import SAMPLE  # noqa: E402
from scripts.clean_dump import article_lines, dump_articles  # noqa: E402

DUMP = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
TITLES_HEADING = "## Articles\n"

if __name__ == "__main__":
    dump = Path(str(distribution("gensim").locate_file(DUMP)))
    articles = list(dump_articles(dump, Counter()))
    text = "".join(article_lines(article) for article in articles)
    SAMPLE.write_bytes(bz2.compress(text.encode()))
    page = SAMPLE.with_name("wikipedia_sample.md")
    titles = "".join(f"- {article.title}\n" for article in articles)
    page.write_text(page.read_text().partition(TITLES_HEADING)[0] + f"{TITLES_HEADING}\n{titles}")
