"""How fast each reader of a corpus takes ordinary records, and records of a few bytes.

    python tests/benchmarks/bench_readers.py [--json PATH] [--megabytes N] [--only NAME]

Processor time of one process, reading from a file in the page cache; the records are built and
let go.  The smallest records of each format are what costs most a byte.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common import WORDS, options, report

from helpers.data.conll import read_documents, read_trees
from helpers.data.coreference import read_brackets
from helpers.data.glove import read_glove
from helpers.data.wikipedia import articles

PROSE = "The old town lies on the river, and its market is held on the first day of a month."
PAGE = "<page><title>{}</title><ns>0</ns><revision><text>{}</text></revision></page>\n"


def sentence(row: Callable[[int, str, int], str], number: int, length: int = 20) -> str:
    """Return a sentence of a column format: the first word is the root and heads the others."""
    words = (WORDS[(number + place) % len(WORDS)] for place in range(length))
    return "".join(row(place, word, int(place > 0)) for place, word in enumerate(words)) + "\n"


def conllx(place: int, word: str, head: int) -> str:
    return f"{place + 1}\t{word}\t_\tNN\tNN\t_\t{head}\t{'det' if head else 'root'}\t_\t_\n"


def conll2012(place: int, word: str, head: int) -> str:
    cells = f"bc/a 0 {place} {word} NN * - - - speaker * {'(7)' if place % 3 == 1 else '-'}"
    return cells.replace(" ", "   ") + "\n"


def ontogum_tree(place: int, word: str, head: int) -> str:
    return (
        conllx(place, word, head).removesuffix("_\n")
        + f"Entity={'(7)' if place % 3 == 1 else '_'}\n"
    )


def ontogum(place: int, word: str, head: int) -> str:
    return f"{place}\t{word}\t{'(7)' if place % 3 == 1 else '_'}\n"


def document(begin: str, row: Callable[[int, str, int], str], number: int) -> str:
    return f"{begin.format(number)}\n{sentence(row, number)}#end document\n"


def paragraph(number: int) -> str:
    return " ".join(PROSE.replace("first", f"{number + place}th") for place in range(4))


def article(number: int) -> str:
    text = f"'''Town {number}''' is a [[town]].{{{{cite|a}}}} "
    return PAGE.format(f"Town {number}", text + "\n\n".join(map(paragraph, range(6))))


# name: reader, suffix, what a file starts with, ordinary record, smallest record
READERS: dict[str, tuple] = {
    "CoNLL-U": (
        partial(read_trees, format="conllu"),
        ".conllu",
        "",
        lambda n: f"# sent_id = a-{n}\n" + sentence(conllx, n),
        lambda n: "1\ta\t\t\t\t\t0\tr\t\t\n\n",
    ),
    "CoNLL-X": (
        partial(read_trees, format="conllx"),
        ".conllx",
        "",
        lambda n: sentence(conllx, n),
        lambda n: "1\ta\t\t\t\t\t0\tr\n\n",
    ),
    "word head-relation": (
        partial(read_trees, format="plain"),
        ".txt",
        "",
        lambda n: sentence(lambda place, word, head: f"{word} {head}-det\n", n),
        lambda n: "a 0-r\n\n",
    ),
    "CoNLL-2012": (
        partial(read_documents, format="conll2012"),
        ".conll",
        "",
        partial(document, "#begin document (bc/{}); part 000", conll2012),
        lambda n: "#begin document (a);\na 0 0 a - - - - - - - -\n#end document\n",
    ),
    "OntoGUM": (
        partial(read_documents, format="ontogum"),
        ".conll",
        "",
        partial(document, "# begin document {}", ontogum),
        lambda n: "#begin document\n0\ta\t_\n#end document\n",
    ),
    "OntoGUM trees": (
        partial(read_documents, format="conllu"),
        ".conllu",
        "",
        lambda n: f"# newdoc id = a-{n}\n# sent_id = a-{n}\n" + sentence(ontogum_tree, n),
        lambda n: "#newdoc\n1\ta\t\t\t\t\t0\tr\t\t\n\n",
    ),
    "brackets": (
        partial(read_brackets, counts=Counter()),
        ".txt",
        "",
        lambda n: f"# town-{n} story\n[The town]1 lies there. {PROSE} [Ann]2 saw [it]1.\n\n",
        lambda n: f"# {n:x} a\na\n",
    ),
    "plain text": (
        articles,
        ".txt",
        "",
        lambda n: f"{paragraph(n)}\n{paragraph(n + 1)}\n\n",
        lambda n: "a\n\n",
    ),
    "Wikipedia dump": (
        articles,
        ".xml",
        "<mediawiki>",
        article,
        lambda n: "<page><text>a</text></page>",
    ),
    "GloVe": (
        lambda path: [read_glove(path)],
        ".txt",
        "",
        lambda n: f"word{n} " + " ".join(f"{(n + k) % 97 / 97:.5f}" for k in range(50)) + "\n",
        lambda n: f"{n:x} 1\n",
    ),
}


def write(path: Path, start: str, record: Callable[[int], str], size: int) -> int:
    """Fill a file with records up to ``size`` bytes; return how many there are."""
    written = records = 0
    with path.open("w") as file:
        file.write(start)
        while written < size:
            written += file.write(record(records))
            records += 1
        file.write("</mediawiki>" if path.suffix == ".xml" else "")
    return records


def seconds(read: Callable[[Path], Iterator], path: Path) -> float:
    """Return the processor time of reading a file to its end."""
    started = time.process_time()
    for _ in read(path):
        pass
    return time.process_time() - started


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--only", choices=READERS, metavar="NAME")
    given = parser.parse_args()
    results: dict[str, dict] = {}
    print(f"{'MB/s (records/s)':20}{'ordinary':>24}{'smallest':>24}")
    with tempfile.TemporaryDirectory() as folder:
        for name in [given.only] if given.only else READERS:
            read, suffix, start, *kinds = READERS[name]
            results[name] = {}
            line = f"{name:20}"
            for kind, record in zip(("ordinary", "smallest"), kinds, strict=True):
                path = Path(folder) / f"{kind}{suffix}"
                records = write(path, start, record, int(given.megabytes * 1e6))
                size = path.stat().st_size
                taken = statistics.median(seconds(read, path) for _ in range(given.repeats))
                results[name][kind] = {
                    "bytes_a_record": round(size / records, 1),
                    "mb_per_s": round(size / taken / 1e6, 2),
                    "records_per_s": round(records / taken),
                }
                line += f"{size / taken / 1e6:12.1f}{f'({records / taken:,.0f})':>12}"
                path.unlink()
            print(line, flush=True)
    report({"megabytes": given.megabytes, "readers": results}, given.json)


if __name__ == "__main__":
    main()
