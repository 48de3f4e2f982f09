// The search of the book: lessons come before pages for developers, and functions last.
const FOR_DEVELOPERS = ["api", "extend", "package", "clusters", "safety", "changelog", "contributing"];

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (kind === "object") return score - 100;
    if (FOR_DEVELOPERS.some((name) => docname.startsWith(name))) return score - 50;
    return docname.startsWith("notebooks/") ? score + 10 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
