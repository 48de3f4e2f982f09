"""Small texts, treebanks and documents in German, Turkish and Chinese, written for the tests."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from toy_corpora import conllu, write

TEXTS = {
    "German": (
        "Der alte Mann ging jeden Morgen langsam durch den kleinen Park am Fluss.",
        "Seine beiden Hunde liefen immer weit vor ihm her, und er rief sie selten zurück.",
        "Im Winter blieb er zu Hause, denn die Wege waren glatt.",
    ),
    "Turkish": (
        "Yaşlı adam her sabah nehrin kıyısındaki küçük parkta yavaşça yürürdü.",
        "İki köpeği hep önünden koşardı, o da onları nadiren geri çağırırdı.",
        "Kışın evde kalırdı, çünkü yollar kaygandı.",
    ),
    "Chinese": (
        "那位老人每天早上在河边的小公园里慢慢地走。",
        "他的两条狗总是跑在他前面，他很少叫它们回来。",
        "冬天他留在家里，因为路很滑。",
    ),
}
# Words with the number of their parent and their relation; {} is a name.
SENTENCES = {
    "German": (
        "{}/3/nsubj:pass wird/3/aux:pass gesehen/0/root ./3/punct",
        "{}/2/nsubj sieht/0/root den/4/det Fluss/2/obj ./2/punct",
    ),
    "Turkish": (
        "{}/2/nsubj:pass görüldü/0/root ./2/punct",
        "{}/3/nsubj nehri/3/obj gördü/0/root ./3/punct",
    ),
    "Chinese": (
        "{}/3/nsubj:pass 被/3/aux:pass 看见/0/root 。/3/punct",
        "{}/2/nsubj 看见/0/root 这/4/det 河/2/obj 。/2/punct",
    ),
}
NAMES = {
    "German": ("Anna", "Otto", "Jörg", "Käthe", "Emil"),
    "Turkish": ("Ayşe", "Işık", "Ömer", "Güneş", "Çağla"),
    "Chinese": ("小明", "小红", "老王", "李雷", "韩梅"),
}
DOCUMENTS = {
    "German": "[Der alte Mann aus Rom]1 ruft [den Hund]2 . [Er]1 ruft [ihn]2 oft , und [er]2 kommt "
    "schnell durch den nassen Park zu [ihm]1 .",
    "Turkish": "[Yaşlı adam]1 [köpeği]2 çağırdı . [O]1 [onu]2 sık sık çağırır ve [köpek]2 hızla "
    "ıslak parkın içinden koşarak [onun]1 yanına gelir .",
}


def text(folder: Path, language: str, documents: int = 12) -> Path:
    """Write a folder of documents of two paragraphs."""
    path = folder / f"{language}-text"
    path.mkdir()
    sentences = TEXTS[language]
    for number in range(documents):
        first = number % len(sentences)
        paragraphs = [*sentences[first:], *sentences[:first]]
        (path / f"{number}.txt").write_text("\n\n".join(paragraphs[:2]), encoding="utf-8")
    return path


def treebank(folder: Path, language: str) -> Path:
    """Write a treebank in Universal Dependencies with subtypes of relations."""
    sentences = []
    for names in permutations(NAMES[language], 2):
        for name, pattern in zip(names, SENTENCES[language], strict=True):
            words = enumerate(pattern.format(name).split(), 1)
            parts = [(number, *word.rsplit("/", 2)) for number, word in words]
            sentences.append(parts)
    return write(folder, f"{language}.conllu", conllu(*sentences, times=1))


def documents(folder: Path, language: str) -> Path:
    """Write coreference documents in brackets."""
    lines = [f"# tale-{number} story\n{DOCUMENTS[language]}\n" for number in range(4)]
    return write(folder, f"{language}-documents.txt", "".join(lines))
