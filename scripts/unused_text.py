"""Write the paragraphs of the bundled text that no sample of a default run has.

Thresholds were set while the numbers of the default were seen.  A run on these paragraphs is a test
on texts that nobody has looked at::

    python scripts/unused_text.py build/unused
    python -m helpers run --model mpnet --text build/unused --only 01,02,03,04,05,06 --name unused
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path

from helpers import Study
from helpers.data.wikipedia import SAMPLE, articles
from helpers.files import slugify


def used_paragraphs() -> tuple[set[str], dict[str, set[int]]]:
    """Collect the paragraphs of segments, by text, and those of parsed sentences, by number."""
    study = Study()
    texts = set()
    for segment in study.segment_corpus().records():
        texts |= {segment.first, segment.second}
    numbers = defaultdict(set)
    for sentence in study.treebank_corpus().records():
        source = re.fullmatch(r"(.*), paragraph (\d+), sentence \d+", sentence.source)
        numbers[source[1]].add(int(source[2]))
    return texts, numbers


def write_unused(folder: Path) -> int:
    """Write a file for each article; returns the number of paragraphs.

    Where a paragraph between two others is left out, these two become neighbours.
    """
    texts, numbers = used_paragraphs()
    folder.mkdir(parents=True)
    total = 0
    for article in articles(SAMPLE):
        unused = []
        for number, paragraph in enumerate(article.paragraphs, start=1):
            if paragraph not in texts and number not in numbers[article.title]:
                unused.append(paragraph)
        path = folder / f"{slugify(article.title)}.txt"
        path.write_text("\n\n".join(unused), encoding="utf-8")
        total += len(unused)
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    arguments = parser.parse_args()
    print(f"{write_unused(arguments.folder):,} paragraphs in {arguments.folder}")
