/* Where examples and maps come from: a page that holds them, or a notebook's kernel. */

const FULL = 10000; // the weight 1

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

/* The small maps with and without special tokens, the answers of the heads, the words of tokens. */
function unpacked({ level, tokens, special }, [all, words, answers]) {
  const small = [all, words.length ? words : withoutSpecial(all, tokens.length, special)];
  return { small, answers: new Uint16Array(answers.buffer),
    groups: level === "word" ? null : wordsOf(tokens, special) };
}

/* If a cell of the small maps is one token, their part without special tokens is not sent. */
function withoutSpecial(all, n, special) {
  const kept = Array.from({ length: n }, (_, i) => i).filter((i) => !special.includes(i));
  const cells = new Uint8Array((all.length / n ** 2) * kept.length ** 2);
  let place = 0;
  for (let head = 0; head < all.length; head += n ** 2) {
    for (const i of kept) for (const j of kept) cells[place++] = all[head + i * n + j];
  }
  return cells;
}

/* A page without a kernel: everything is in `data.pages`. */
function embedded(data) {
  const pages = new Map(data.pages.map((page) => [page.example, page]));
  const source = {
    examples: [...pages.keys()],
    relations: [...new Set(data.pages.flatMap((page) => page.questions.map((q) => q.relation)))],
    async page(index) {
      const page = pages.get(index);
      if (!page) throw new Error("This example is not in this page.");
      if (!page.small) Object.assign(page, unpacked(page, await Promise.all(page.buffers.map(unpack))));
      return page;
    },
    pages: () => Promise.all(source.examples.map(source.page)),
    async map(page, head, ofControl = false) {
      const maps = ofControl ? page.control : page.maps;
      if (!(head in maps)) {
        const held = Object.keys(page.maps).map((own) => page.labels[own]).join(", ");
        throw new Error(`This page has the weights of head ${held} only. Open the notebook, or `
          + "write a page with all heads: view(…).save(\"heads.html\").");
      }
      const bytes = await unpack(maps[head]);
      const size = page.tokens.length ** 2;
      return Float32Array.from({ length: size }, (_, i) => (bytes[i] + 256 * bytes[size + i]) / FULL);
    },
    async search(query) {
      if (query.relation && !source.relations.includes(query.relation)) {
        throw new Error(`No relation ${query.relation} here; there are ${source.relations.join(", ")}.`);
      }
      const found = [];
      for (const example of source.examples) {
        const page = await source.page(example);
        if (query.relation) found.push(...answers(page, query));
        else {
          page.tokens.forEach((word, asked) => {
            if (sameWord(word, query.word)) found.push({ ...hit(page, asked), relation: "" });
          });
        }
      }
      return { found, more: false };
    },
  };
  return source;
}

/* A word with the words around it. */
function hit(page, asked) {
  const words = page.tokens.map((_, i) => i).filter((i) => !page.special.includes(i));
  const join = (places) => places.map((i) => page.tokens[i]).join(" ");
  const before = words.filter((i) => i < asked);
  const after = words.filter((i) => i > asked);
  return { example: page.example, asked, word: page.tokens[asked],
    before: (before.length > AROUND ? "… " : "") + join(before.slice(-AROUND)),
    after: join(after.slice(0, AROUND)) + (after.length > AROUND ? " …" : "") };
}

function answers(page, query) {
  return answered(page, query.head, query.reverse)
    .filter((q) => q.relation === query.relation)
    .filter((q) => !query.word || sameWord(page.tokens[q.asked], query.word))
    .filter((q) => query.right === null || q.right === query.right)
    .map((q) => ({
      ...q,
      ...hit(page, q.asked),
      picked: page.tokens[q.picked],
      gold: q.gold.map((place) => page.tokens[place]).join(" / "),
    }));
}

/* A notebook: the kernel is asked, and answers with JSON and bytes. */
function kernel(invoke, settings) {
  const stop = new AbortController(); // or anywidget gives up after three seconds
  const ask = async (request) => {
    const [content, buffers] = await invoke("answer", request, { signal: stop.signal });
    if (content.error) throw new Error(content.error);
    return [content, buffers];
  };
  const copy = (view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return {
    examples: null, // every example of the store
    relations: settings.relations,
    close: () => stop.abort(),
    pages: async (page) => [page], // the others are not here
    async page(index) {
      const [content, buffers] = await ask({ kind: "page", example: index });
      return { ...content.page,
        ...unpacked(content.page, buffers.map((view) => new Uint8Array(copy(view)))) };
    },
    async map(page, head, ofControl = false) {
      const kind = ofControl ? "control" : "map";
      const [, buffers] = await ask({ kind, example: page.example, head });
      return Float32Array.from(new Uint16Array(copy(buffers[0])), (value) => value / FULL);
    },
    async search(query) {
      const direction = settings.look.directions[Number(query.reverse)];
      return (await ask({ kind: "search", ...query, direction }))[0];
    },
  };
}

// ---- Whole words (section 4.1) ---------------------------------------------------------------

/* The word that each token is in, counted from 0; null where each is its own. WordPiece marks what
   continues a word (##s), byte-level BPE and SentencePiece what starts one (Ġthe, ▁the): there a
   letter after an unmarked letter continues it. */
function wordsOf(tokens, special) {
  const marked = tokens.map((token) => /^[Ġ▁ ]/.test(token));
  const joins = (token, i) => (!marked.includes(true) ? token.startsWith("##")
    : !marked[i] && /^[\p{L}\p{N}]/u.test(token) && /[\p{L}\p{N}]$/u.test(tokens[i - 1]));
  let word = -1;
  const groups = tokens.map((token, i) => {
    if (!i || special.includes(i) || special.includes(i - 1) || !joins(token, i)) word += 1;
    return word;
  });
  return word < tokens.length - 1 ? groups : null;
}

/* A page of tokens as one of words; `groups` has the word of each token. */
function wordPage(page) {
  const { groups, tokens, special } = page;
  const first = tokens.map((_, i) => i).filter((i) => i === 0 || groups[i] !== groups[i - 1]);
  const words = first.map((start) => tokens
    .filter((_, i) => groups[i] === groups[start])
    .map((token) => (special.includes(start) ? token : token.replace(/^(##|Ġ|▁| )/, "")))
    .join(""));
  return {
    ...page,
    level: "word",
    tokens: words,
    kinds: first.map((i) => page.kinds[i]),
    special: special.map((i) => groups[i]),
  };
}

/* Attention to a word is the sum over its tokens, attention from it their mean. */
function wordMap(map, groups) {
  const n = groups.length;
  const words = groups[n - 1] + 1;
  const sizes = new Array(words).fill(0);
  groups.forEach((word) => { sizes[word] += 1; });
  const out = new Float32Array(words * words);
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < n; j += 1) {
      out[groups[i] * words + groups[j]] += map[i * n + j] / sizes[groups[i]];
    }
  }
  return out;
}

// ---- The head as a classifier (sections 4.2 and 4.3) -----------------------------------------

/* The questions of a page with what a head picks and whether that is right; Python has decided. */
function answered(page, head, reverse) {
  const first = (Number(reverse) * page.labels.length + head) * page.questions.length;
  return page.questions.map((question, i) => (
    { ...question, picked: page.answers[first + i] >> 1, right: page.answers[first + i] % 2 === 1 }));
}
