/* The page "Your sentence": a model in the browser is the source of a viewer. Its address says what is
   shown, as in #text=My+plan+failed.&cls=dropped&head=3-1; what follows the # is not sent. */
import { Tokenizer } from "./tokenizer.js";
import { show, wordsOf } from "./viewer.js";

// What the graph does with the attention to [CLS], in the order in which it counts.
const CHANGES = [
  ["as it is", "Move the slider to change the attention to [CLS] in every layer."],
  ["constant", "Every token but [CLS] gives [CLS] the same attention, the mean of the head."],
  ["dropped", "No token attends to [CLS], and the other weights stay as they were."],
  ["given to words", "No token attends to [CLS]; words and [SEP] get its share, in proportion."],
];

const byId = (id) => document.getElementById(id);
const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);

/* The angle between two vectors, in degrees. */
function angle(a, b) {
  const cosine = dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
  return Math.acos(Math.min(1, cosine)) * (180 / Math.PI);
}

/* The bytes of a file; `tell` gets the number of those that have come since. */
async function download(name, tell) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be loaded (${response.status}).`);
  const chunks = [];
  const reader = response.body.getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    chunks.push(chunk.value);
    tell(chunk.value.length);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

/* Loads the tokenizer, and a function from ids and a number of CHANGES to maps and vector. */
async function loadModel(sizes, tell) {
  const total = Object.values(sizes).reduce((a, b) => a + b);
  let loaded = 0;
  const get = (name) => download(name, (bytes) => {
    loaded += bytes;
    const megabytes = [loaded, total].map((size) => (size / 1e6).toFixed(0));
    tell(loaded / total, `Loading the model: ${megabytes.join(" of ")} MB`);
  });
  const [wasm, graph, vocabulary] = await Promise.all(
    ["runtime.wasm", "graph.onnx", "vocabulary.txt"].map(get));
  tell(1, "Preparing the model …");
  const runtime = await import("./runtime.js");
  Object.assign(runtime.env.wasm, { wasmBinary: wasm.buffer, numThreads: 1 });
  const session = await runtime.InferenceSession.create(graph, { executionProviders: ["wasm"] });
  const integers = (values, shape) => (
    new runtime.Tensor("int64", BigInt64Array.from(values, BigInt), shape));
  return {
    tokenizer: new Tokenizer(new TextDecoder().decode(vocabulary).split("\n")),
    async run(ids, change) {
      const { attention, vector } = await session.run(
        { ids: integers(ids, [1, ids.length]), change: integers([change], []) });
      return { attention: attention.data, vector: vector.data };
    },
  };
}

/* Where most of a head's attention goes, among some positions: in words, with its share. This and
   the small maps are computed as in the viewer's page.py. */
function summary(map, n, shown, kinds, labels) {
  const shares = new Map([["itself", 0]]);
  const add = (name, weight) => shares.set(name, (shares.get(name) ?? 0) + weight / shown.length);
  const near = { "-1": "the previous", 0: "itself", 1: "the next" };
  shown.forEach((query, row) => shown.forEach((key, column) => {
    const weight = map[query * n + key];
    if (kinds[key] !== "other") add(labels[kinds[key]], weight);
    if (Math.abs(column - row) <= 1) add(near[column - row], weight);
  }));
  const [name, share] = [...shares].sort((a, b) => b[1] - a[1])[0];
  return `${Math.round(100 * share)}% to ${name}`;
}

/* A small map of some positions: the largest weight of each of at most 32 x 32 cells, to 255. */
function thumbnail(map, n, shown, exponent) {
  const side = Math.min(shown.length, 32);
  const cell = shown.map((_, i) => Math.floor(((i + 1) * side - 1) / shown.length));
  const largest = new Float32Array(side * side);
  shown.forEach((query, row) => shown.forEach((key, column) => {
    const at = cell[row] * side + cell[column];
    largest[at] = Math.max(largest[at], map[query * n + key]);
  }));
  return Array.from(largest, (weight) => Math.round(255 * weight ** exponent));
}

/* An example of the viewer, from tokens, their kinds and the maps of all heads. */
function makeExample({ facts, look }, tokens, kinds, attention) {
  const n = tokens.length;
  const every = tokens.map((_, i) => i);
  const special = every.filter((i) => kinds[i] === "cls" || kinds[i] === "sep");
  const maps = facts.labels.map((_, head) => attention.subarray(head * n * n, (head + 1) * n * n));
  const sets = [every, every.filter((i) => !special.includes(i))];
  return {
    ...facts, tokens, kinds, special, maps,
    groups: wordsOf(tokens, special), answers: [],
    summaries: sets.map((shown) => maps.map((map) => summary(map, n, shown, kinds, look.labels))),
    small: sets.map((shown) => Uint8Array.from(
      maps.flatMap((map) => thumbnail(map, n, shown, look.exponent)))),
  };
}

class YourSentence {
  constructor(settings) {
    this.settings = settings;
    this.link = {}; // what the viewer shows
    this.latest = 0; // a late result of an earlier sentence is not shown
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => this.show());
    });
    byId("change").addEventListener("input", () => this.attempt(() => this.show()));
    window.addEventListener("hashchange", () => this.attempt(() => this.follow(this.readAddress())));
  }

  attempt(work) {
    return work().catch((error) => this.tell(error.message, "alert"));
  }

  tell(text, role = "status") {
    byId("message").setAttribute("role", role);
    byId("message").textContent = text;
  }

  async load() {
    const link = this.readAddress();
    this.model = await loadModel(this.settings.downloads, (share, text) => {
      byId("progress").value = share;
      this.tell(text);
    });
    byId("progress").hidden = true;
    byId("sink").hidden = false;
    await this.follow(link);
  }

  /* Takes the sentence and the change from the address; the rest of it is a link of the viewer. */
  readAddress() {
    const { text, cls, ...link } = Object.fromEntries(
      new URLSearchParams(window.location.hash.slice(1)));
    byId("text").value = text ?? this.settings.text;
    byId("change").value = Math.max(0, CHANGES.findIndex(([name]) => name === cls));
    return link;
  }

  async follow(link) {
    await this.show();
    if (this.view && Object.keys(link).length) await this.view.follow(link);
  }

  /* Computes the maps of the sentence that is typed, and shows them. */
  async show() {
    if (!this.model) return;
    const own = this.latest += 1;
    const { settings, model: { tokenizer, run } } = this;
    const change = Number(byId("change").value);
    const ids = tokenizer.encode(byId("text").value);
    if (ids.length === 2) throw new Error("Type a sentence.");
    if (ids.length > settings.max_tokens) {
      throw new Error(`The text has ${ids.length} tokens; at most ${settings.max_tokens} are shown.`);
    }
    const intact = await run(ids, 0);
    const changed = change ? await run(ids, change) : intact;
    if (own !== this.latest) return;
    this.example = makeExample(settings, ids.map((id) => tokenizer.pieces[id]), ids.map((id, i) => (
      i === 0 ? "cls" : i === ids.length - 1 ? "sep"
        : settings.punctuation.includes(id) ? "punctuation" : "other")), changed.attention);
    this.tell("");
    this.tellChange(change, angle(intact.vector, changed.vector));
    await this.draw();
    this.tellAddress();
  }

  tellChange(change, degrees) {
    const [name, explanation] = CHANGES[change];
    byId("change-name").textContent = name;
    byId("change").setAttribute("aria-valuetext", name);
    byId("angle").textContent = explanation
      + (change ? ` The sentence vector turns by ${degrees.toFixed(1)}°.` : "");
  }

  draw() {
    if (this.view) return this.view.open(0);
    this.view = show(byId("viewer"), this.settings, { examples: [0], relations: [],
      page: async () => this.example, pages: async () => [this.example],
      map: async (example, head) => example.maps[head] });
    this.view.onlink = (link) => {
      this.link = link;
      this.tellAddress();
    };
    return this.view.ready;
  }

  tellAddress() {
    const change = Number(byId("change").value);
    const link = { text: byId("text").value, ...this.link };
    if (change) [link.cls] = CHANGES[change];
    window.history.replaceState(null, "", `#${new URLSearchParams(link)}`);
  }
}

export const yourSentence = new YourSentence(JSON.parse(byId("data").textContent));
yourSentence.attempt(() => yourSentence.load());
