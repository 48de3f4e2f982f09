/* The head viewer. It has two hosts: a page that holds all it shows (`start`), and a notebook
   whose kernel is asked for the rest (`default.initialize`). Where examples and maps come from is in
   sources.js, which is put before this file. Text is only ever set as text. */

const FAINTEST = 0.004; // a lighter line cannot be seen on white
const MOST_LINES = 4000; // more lines than this are slow, and only grey
const ROW = 17; // pixels from one token to the next
const FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const FONT = `12.5px ${FAMILY}`;
const SMALL_FONT = `11px ${FAMILY}`; // the smallest type
const EVERY = "(all)";
// What can be drawn beside a head, besides another one; view.py has the same names.
const [LAYER, MEAN, CONTROL] = ["layer", "mean", "control"];
const AROUND = 12; // words on each side of a hit of a search
// What a copied picture needs of the style sheet.
const COPIED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray",
  "opacity", "font-size", "font-weight", "text-anchor"];
const DEFAULTS = { "fill-opacity": "1", stroke: "none", "stroke-opacity": "1", "stroke-width": "1px",
  "stroke-dasharray": "none", opacity: "1" }; // a mark in a group has its fill, none too
// Of coreference chains, seen on light and on dark.
const CHAINS = ["#0173b2", "#b56a00", "#02805e", "#d55e00", "#b05aa0", "#9a6a3f", "#c0508f", "#767676"];
// What the colours of the figures are on a dark page.
const DARK = { first: "#d9a066", cls: "#5ab4f0", sep: "#f0883e", punctuation: "#2fcb8a", other: "#c8c8c8",
  ink: "#e8e8e8", muted: "#a8b0b8", right: "#b39dff", wrong: "#ff6fa5" };

// ---- Elements --------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/* A picture of cells: a colour each, as the pixels of an image hold it. */
function picture(colors, width, attributes = {}) {
  const height = Math.max(1, colors.length / (width || 1));
  const canvas = element("canvas", { width: Math.max(width, 1), height, ...attributes });
  if (width) {
    canvas.getContext("2d").putImageData(
      new ImageData(new Uint8ClampedArray(colors.buffer), width, height), 0, 0);
  }
  return canvas;
}

const percent = (weight) => (weight >= 0.0995 ? `${Math.round(100 * weight)}%`
  : `${(100 * weight).toFixed(1)}%`);

// ---- The view --------------------------------------------------------------------------------

class View {
  constructor(root, source, settings) {
    Object.assign(this, { root, source, settings, look: settings.look });
    this.head = settings.head;
    this.relation = settings.relation;
    this.reverse = settings.direction === this.look.directions[1];
    this.showSpecial = !this.relation; // the lines to them are the darkest
    this.beside = settings.compare;
    this.byWord = false;
    this.showLabels = true;
    this.rated = false;
    this.page = this.map = this.pinned = this.hovered = null;
    this.latest = this.latestRating = 0; // a late answer to an earlier request is not shown
    this.onlink = null; // called with the link to what a reader chose
    this.build();
    this.ready = this.open(settings.example);
  }

  build() {
    const { root, look } = this;
    root.replaceChildren();
    root.classList.add("av");
    // JupyterLab leaves the keys to the view.
    root.setAttribute("data-lm-suppress-shortcuts", "true");
    for (const name of ["ink", "muted", "right", "wrong"]) {
      root.style.setProperty(`--${name}`, look.colors[name]);
    }
    // A page of its own has one heading; a notebook has others above.
    this.name = element(root.id === "viewer" ? "h1" : "h2", { class: "av-name" });
    this.facts = element("p", { class: "av-facts" });
    this.controls = element("div", { class: "av-controls" });
    this.finder = this.buildFinder();
    this.grid = element("div", { class: "av-grid", role: "radiogroup", "aria-label": "Heads" });
    this.legend = element("div", { class: "av-legend" });
    this.drawing = element("div", { class: "av-drawing" });
    this.second = element("div", { class: "av-second" });
    this.status = element("p", { class: "av-status", role: "status", "aria-live": "polite" });
    this.notice = element("p", { class: "av-notice", role: "status" });
    this.copied = element("span", { role: "status" });
    this.tools = element("p", { class: "av-tools" }, element("button", { type: "button",
      onclick: () => this.copy() }, "Copy as SVG"), this.copied);
    this.rating = element("p", { class: "av-hint av-rating", role: "status" });
    this.verdicts = element("div", { class: "av-verdicts" });
    this.table = element("details", { class: "av-table", ontoggle: () => this.drawTable() },
      element("summary", {}, "The weights as a table"), element("div"));
    root.append(
      element("header", {}, element("div", {}, this.name, this.facts), this.controls),
      element("div", { class: "av-body" },
        element("section", { class: "av-heads", "aria-label": "All heads" },
          this.grid,
          element("p", { class: "av-hint" },
            "Rows of the grid are layers, columns are heads. In a small map, rows attend to columns; ",
            "a stronger colour is more. Arrow keys go from head to head."),
          this.rating,
          this.finder),
        element("section", { class: "av-main", "aria-label": "One head" },
          this.notice, this.legend, this.status,
          element("div", { class: "av-pair" }, this.drawing, this.second), this.tools, this.verdicts)),
      this.table);
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.pin(null);
    });
  }

  // -- What is shown

  async open(index, { pinned = null, relation = this.relation } = {}) {
    await this.attempt(async () => {
      const page = await this.source.page(index);
      const map = await this.source.map(page, this.head);
      const other = await this.otherMap(page);
      return () => {
        if (relation !== this.relation) this.showSpecial = !relation;
        Object.assign(this, { pinned, relation, hovered: null, raw: { page, map, other } });
        this.setLevel();
        if (pinned !== null && this.page !== page) this.pinned = page.groups[pinned];
        this.notice.textContent = "";
        this.drawControls();
        this.drawGrid();
        this.drawHead();
        this.tellLink();
      };
    });
  }

  /* Where an example is among those that can be shown, from 0, and the other way round. */
  placeOf(example) {
    return this.source.examples ? this.source.examples.indexOf(example) : example;
  }

  get total() {
    return this.source.examples ? this.source.examples.length : this.page.examples;
  }

  goTo(place) {
    const { total } = this;
    const exists = Number.isInteger(place) && place >= 0 && place < total;
    if (exists) return this.open(this.source.examples ? this.source.examples[place] : place);
    return this.fail(`There is no such example here; there are 1 to ${total}.`);
  }

  /* Goes where a link or the page around asks: a head, an example, a word, a relation. What is not
     named stays; what is named and not here is said. */
  async follow(link) {
    await this.ready;
    if (!this.raw) return;
    const missing = [];
    const { labels } = this.raw.page;
    if (link.head && !labels.includes(link.head)) missing.push(`head ${link.head}`);
    else if (link.head) this.head = labels.indexOf(link.head);
    if (link.direction) this.reverse = ["parent", this.look.directions[1]].includes(link.direction);
    const relation = link.relation ?? this.relation;
    const word = link.word ?? "";
    const page = await this.findPage(link, word, relation);
    if (!page) missing.push(`example ${link.example}`);
    const shown = page ?? this.raw.page;
    if (relation && !hasRelation(shown, relation)) missing.push(`relation ${relation}`);
    let pinned = null;
    if (word) {
      pinned = findWord(shown.tokens, word, link.nth);
      if (pinned === null && shown.groups) {
        const inWords = findWord(wordPage(shown).tokens, word, link.nth);
        if (inWords !== null) pinned = shown.groups.indexOf(inWords);
        this.byWord = inWords !== null;
      }
      if (pinned === null) missing.push(`word ${word}`);
    } else if (link.word === undefined && shown === this.raw.page && !this.byWord) {
      pinned = this.pinned;
    }
    await this.open(shown.example, { pinned, relation });
    if (missing.length) this.notice.textContent = `Not here: ${missing.join(", ")}.`;
  }

  /* The page of the example that a link names, or else the first with its word and relation. */
  async findPage({ example, nth }, word, relation) {
    const { examples } = this.source;
    const { total } = this;
    if (example) {
      const place = Number(example) - 1;
      if (!(Number.isInteger(place) && place >= 0 && place < total)) return null;
      return this.source.page(examples ? examples[place] : place);
    }
    const isFitting = (page) => (!relation || hasRelation(page, relation))
      && (!word || findWord(page.tokens, word, nth) !== null);
    for (const page of [this.raw.page, ...await this.source.pages(this.raw.page)]) {
      if (isFitting(page)) return page;
    }
    return this.raw.page;
  }

  /* What a link to the view says, as `follow` reads it. */
  tellLink() {
    if (!this.onlink) return;
    const { page, pinned } = this;
    const link = { head: page.labels[this.head] };
    if (this.total > 1) link.example = this.placeOf(page.example) + 1;
    if (pinned !== null) {
      link.word = page.tokens[pinned].replace(/^[Ġ▁ ]/, "");
      const nth = page.tokens.slice(0, pinned + 1).filter((token) => sameWord(token, link.word)).length;
      if (nth > 1) link.nth = nth;
    }
    if (this.relation) {
      link.relation = this.relation;
      if (page.directed) link.direction = this.reverse ? "parent" : "dependent";
    }
    this.onlink(link);
  }

  async choose(head) {
    this.head = head;
    this.markHead();
    await this.attempt(async () => {
      const map = await this.source.map(this.raw.page, head);
      const other = await this.otherMap(this.raw.page);
      return () => {
        Object.assign(this.raw, { map, other });
        this.setLevel();
        this.drawControls();
        this.drawHead();
        this.tellLink();
      };
    });
  }

  /* The map that is drawn beside that of the head: of another head, of the same head in the control,
     or the mean over the heads of its layer or of all layers; null for none. */
  async otherMap(page) {
    const { beside, head, source } = this;
    const { heads, labels } = page;
    if (!beside) return null;
    if (beside === CONTROL) return source.map(page, head, true);
    if (labels.includes(beside)) return source.map(page, labels.indexOf(beside));
    const first = beside === MEAN ? 0 : head - (head % heads);
    const members = labels.map((_, i) => i).slice(first, beside === MEAN ? undefined : first + heads);
    const maps = await Promise.all(members.map((member) => source.map(page, member)));
    return maps[0].map((_, i) => maps.reduce((sum, map) => sum + map[i], 0) / maps.length);
  }

  get besideName() {
    const label = this.page.labels[this.head];
    if (this.beside === CONTROL) return `Head ${label}, ${this.settings.control}`;
    if (this.beside === MEAN) return "Mean over all heads";
    return this.beside === LAYER ? `Mean over the heads of layer ${label.split("-")[0]}`
      : `Head ${this.beside}`;
  }

  /* Shows what the source gave, or the same by whole words. */
  setLevel() {
    const { page, map, other } = this.raw;
    const { groups } = page;
    if (this.byWord && groups) {
      Object.assign(this, { page: wordPage(page), map: wordMap(map, groups),
        other: other && wordMap(other, groups) });
    } else Object.assign(this, { page, map, other });
  }

  /* Runs what may fail or come late; only the latest request changes the view. */
  async attempt(work) {
    const own = this.latest += 1;
    this.root.setAttribute("aria-busy", "true");
    try {
      const show = await work();
      if (own === this.latest) show();
    } catch (error) {
      if (own === this.latest) this.fail(error.message);
    }
    if (own === this.latest) this.root.removeAttribute("aria-busy");
  }

  fail(message) {
    if (this.page) this.drawName();
    this.drawing.replaceChildren(element("p", { class: "av-error", role: "alert" }, message));
    this.status.replaceChildren();
    this.second.replaceChildren();
    this.verdicts.replaceChildren();
    this.table.hidden = this.tools.hidden = true;
  }

  weight(query, key) {
    return this.map[query * this.page.tokens.length + key];
  }

  get kept() {
    const { tokens, special } = this.page;
    return tokens.map((_, i) => i).filter((i) => this.showSpecial || !special.includes(i));
  }

  get summary() {
    return this.caption ?? this.page.summaries[Number(!this.showSpecial)][this.head];
  }

  get isReverse() {
    return this.reverse && this.page.directed; // coreference is read in one direction
  }

  /* From where to where a question's answer is read: who attends, and to what. */
  pair(question, answer) {
    const asked = question.read ?? question.asked; // the 's of a possessor
    return this.isReverse ? [answer, asked] : [asked, answer];
  }

  get focus() {
    const focus = this.hovered ?? this.pinned;
    return this.kept.includes(focus) ? focus : null;
  }

  /* The questions that are marked in the drawing, with the head's answers. */
  get marked() {
    if (!this.showLabels || !this.relation || this.hasNoAnswers) return [];
    return answered(this.page, this.head, this.reverse)
      .filter((q) => this.relation === EVERY || q.relation === this.relation);
  }

  // -- Controls

  drawControls() {
    const { page, total } = this;
    const place = this.placeOf(page.example);
    const step = (by, label, text) => element("button", {
      type: "button", "aria-label": label, title: label,
      disabled: place + by < 0 || place + by >= total,
      onclick: () => this.goTo(place + by),
    }, text);
    const number = element("input", {
      type: "number", min: 1, max: total, value: place + 1,
      "aria-label": `Example, of ${total}`,
      onchange: () => this.goTo(Number(number.value) - 1),
    });
    const focused = this.controls.contains(document.activeElement)
      && document.activeElement.getAttribute("aria-label");
    this.controls.replaceChildren(...[
      total > 1 ? element("span", { class: "av-group" },
        step(-1, "Previous example", "‹"), "example ", number, `of ${total}`,
        step(1, "Next example", "›")) : null,
      page.special.length ? this.checkbox("special tokens", "showSpecial") : null,
      this.raw.page.groups ? this.checkbox("whole words", "byWord") : null,
      ...this.labelControls(),
      this.besideControl(),
    ].filter(Boolean));
    if (focused) {
      [...this.controls.querySelectorAll("[aria-label]")]
        .find((node) => node.getAttribute("aria-label") === focused)?.focus();
    }
    this.finder.hidden = total < 2;
  }

  checkbox(label, setting) {
    const box = element("input", { type: "checkbox", onchange: () => {
      this[setting] = box.checked;
      if (setting === "byWord") {
        this.pinned = this.hovered = null;
        this.setLevel();
      }
      this.drawGrid();
      this.drawHead();
      this.tellLink();
    } });
    box.checked = this[setting];
    return element("label", {}, box, label);
  }

  besideControl() {
    const { labels, heads } = this.raw.page;
    const names = [["", "one head"], [LAYER, "beside the mean of its layer"],
      [MEAN, "beside the mean of all heads"]];
    if (this.settings.control) names.push([CONTROL, `beside ${this.settings.control}`]);
    names.push(...labels.map((label) => [label, `beside head ${label}`]));
    const select = element("select", { "aria-label": "Beside", onchange: () => {
      this.beside = select.value;
      this.choose(this.head);
    } }, ...names.map(([value, text]) => element("option", { value }, text)));
    select.value = this.beside;
    return labels.length > 1 || this.settings.control ? select : null;
  }

  labelControls() {
    const { questions } = this.page;
    if (!questions.length && !this.page.mentions.length) return [];
    // The chosen one too, if this example has none of it.
    const chosen = this.relation && this.relation !== EVERY ? [this.relation] : [];
    const names = [...new Set([...questions.map((q) => q.relation), ...chosen])].sort();
    const found = answered(this.page, this.head, this.reverse);
    const score = (name) => {
      const mine = found.filter((q) => name === EVERY || q.relation === name);
      return `${relationName(name)}: ${mine.length ? tally(mine) : "none in this example"}`;
    };
    const options = names.length > 1 ? [EVERY, ...names] : names;
    const select = element("select", { "aria-label": "Relation", onchange: () => {
      if (!this.relation || !select.value) this.showSpecial = !select.value;
      this.relation = select.value;
      this.drawControls();
      this.drawGrid();
      this.drawHead();
      this.tellLink();
    } }, element("option", { value: "" }, "mark a relation …"),
    ...options.map((name) => element("option", { value: name }, score(name))));
    select.value = options.includes(this.relation) ? this.relation : "";
    const direction = element("select", { "aria-label": "Direction", onchange: () => {
      this.reverse = direction.selectedIndex === 1;
      this.drawControls();
      this.drawRatings();
      this.drawHead();
      this.tellLink();
    } }, ...this.look.direction_labels.map((name) => element("option", {}, name)));
    direction.selectedIndex = Number(this.reverse);
    return [this.checkbox(this.page.directed ? "syntax" : "coreference chains", "showLabels"), select,
      this.page.directed ? direction : null,
      this.relation ? this.checkbox("share right of each head", "rated") : null];
  }

  buildFinder() {
    const input = (attributes) => element("input", attributes);
    const list = `av-relations-${Math.random().toString(36).slice(2)}`;
    const word = input({ type: "search", placeholder: "word", "aria-label": "Word" });
    const relation = input({ type: "search", placeholder: "relation", "aria-label": "Relation to find",
      list });
    const verdict = element("select", { "aria-label": "Right or wrong" },
      ...["right or wrong", "right", "wrong"].map((name) => element("option", {}, name)));
    const results = element("ol", { class: "av-results", "aria-label": "Found" });
    const form = element("form", { class: "av-find", onsubmit: async (event) => {
      event.preventDefault();
      const query = { word: word.value.trim(), relation: relation.value.trim(), head: this.head,
        reverse: this.reverse, right: [null, true, false][verdict.selectedIndex] };
      results.replaceChildren(element("li", {}, "searching …"));
      try {
        if (!query.word && !query.relation) throw new Error("Type a word, a relation, or both.");
        this.drawResults(results, await this.source.search(query), query);
      } catch (error) {
        results.replaceChildren(element("li", { role: "alert" }, error.message));
      }
    } },
    element("strong", {}, "Find"), word,
    this.source.relations.length ? relation : null,
    this.source.relations.length ? verdict : null,
    element("button", { type: "submit" }, "Find"),
    element("datalist", { id: list },
      ...this.source.relations.map((value) => element("option", { value }))));
    return element("div", { class: "av-finder", hidden: true }, form, results);
  }

  drawResults(results, { found, more }, query) {
    const label = this.page.labels[query.head];
    const note = query.relation ? ` (head ${label})` : "";
    const isReverse = query.reverse && this.page.directed;
    const answer = (hit) => (isReverse ? `${hit.picked} → ${hit.word}` : `${hit.word} → ${hit.picked}`);
    results.replaceChildren(
      element("li", { class: "av-count", role: "status" },
        more ? `The first ${found.length} found; there are more${note}`
          : found.length ? `${found.length} found${note}` : `Nothing found${note}.`),
      ...found.map((hit) => element("li", {}, element("button", {
        type: "button",
        onclick: () => this.open(hit.example,
          { pinned: hit.asked, relation: hit.relation || this.relation }),
      }, `${this.placeOf(hit.example) + 1} · ${hit.before} `, element("b", {}, hit.word), ` ${hit.after}`,
      hit.relation ? element("span", { class: `av-answer ${hit.right ? "av-right" : "av-wrong"}` },
        answer(hit), hit.right ? " ✓ right" : ` ✗ wrong, ${hit.gold} would be right`) : null))));
  }

  // -- All heads

  drawGrid() {
    const { page } = this;
    const cells = page.small[Number(!this.showSpecial)];
    const side = Math.round(Math.sqrt(cells.length / page.labels.length));
    this.grid.style.setProperty("--heads", page.heads);
    this.grid.style.setProperty("--layers", page.layers);
    const hadFocus = this.grid.contains(document.activeElement);
    this.buttons = page.labels.map((label, head) => this.drawSmall(label, head, side,
      cells.subarray(head * side * side, (head + 1) * side * side)));
    const rows = [element("span", { "aria-hidden": "true" }),
      ...Array.from({ length: page.heads }, (_, i) => element("span",
        { "aria-hidden": "true" }, String(i + 1)))];
    for (let layer = 0; layer < page.layers; layer += 1) {
      rows.push(element("span", { "aria-hidden": "true" },
        page.labels[layer * page.heads].split("-")[0]),
        ...this.buttons.slice(layer * page.heads, (layer + 1) * page.heads));
    }
    this.grid.replaceChildren(...rows);
    this.markHead();
    this.drawRatings();
    // On a phone, the grid of a model of many layers scrolls.
    this.grid.scrollTop = this.buttons[this.head].offsetTop - this.grid.clientHeight / 2;
    if (hadFocus) this.buttons[this.head].focus();
  }

  /* A bar on each small map: how many of the answers to the relation are right, in all examples of a
     page or in the one that a notebook shows. */
  async drawRatings() {
    const own = this.latestRating += 1;
    const { relation, page } = this;
    const shown = this.rated && relation !== "";
    const pages = shown ? await this.source.pages(page) : [];
    if (own !== this.latestRating) return;
    const scores = page.labels.map((_, head) => pages
      .flatMap((held) => answered(held, head, this.reverse))
      .filter((q) => relation === EVERY || q.relation === relation));
    this.buttons.forEach((button, head) => {
      button.querySelector(".av-bar")?.remove();
      const score = scores[head];
      const text = this.headText(head)
        + (score.length ? `; ${relationName(relation)}: ${tally(score)}` : "");
      fill(button, { "aria-label": text, title: text }, []);
      if (!score.length) return;
      const share = score.filter((q) => q.right).length / score.length;
      button.append(element("span", { class: "av-bar", "data-share": share.toFixed(4) },
        element("span", { style: `width:${(100 * share).toFixed(1)}%` })));
    });
    this.rating.replaceChildren(...(shown ? this.ratingText(scores, pages.length) : []));
  }

  ratingText(scores, nPages) {
    const { relation, look, page } = this;
    const name = relationName(relation);
    const counts = scores.map((score) => score.filter((q) => q.right).length);
    const most = Math.max(...counts);
    if (!scores[0].length) return [`No ${name} here.`];
    const best = page.labels.filter((_, head) => counts[head] === most);
    const listed = best.slice(0, 4).join(", ") + (best.length > 4 ? ` and ${best.length - 4} more` : "");
    const direction = page.directed ? ` (${look.direction_labels[Number(this.reverse)]})` : "";
    const where = nPages > 1 ? `the ${nPages} examples of this page` : "this example";
    return [`A bar is the share of ${name} that a head gets right${direction}, in ${where}. `,
      most ? `Most: ${most} of ${scores[0].length} by ${listed}.` : "No head gets any right."];
  }

  headText(head) {
    const { labels, summaries } = this.page;
    const name = this.settings.names[labels[head]];
    const summary = summaries[Number(!this.showSpecial)][head];
    return `Head ${labels[head]}: ${name ? `${name}; ` : ""}${summary}`;
  }

  drawSmall(label, head, side, cells) {
    this.ramp ??= colorRamp(this.look.ramp);
    const text = this.headText(head);
    return element("button", {
      type: "button", role: "radio", "data-head": label, "aria-label": text, title: text,
      onclick: () => this.choose(head),
      onkeydown: (event) => this.stepHead(event, head),
    }, picture(Uint32Array.from(cells, (cell) => this.ramp[cell]), side));
  }

  stepHead(event, head) {
    const { heads, labels } = this.page;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -heads, ArrowDown: heads }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = head + step;
    if (next < 0 || next >= labels.length) return;
    this.buttons[next].focus();
    this.choose(next);
  }

  markHead() {
    this.buttons?.forEach((button, head) => {
      button.setAttribute("aria-checked", String(head === this.head));
      button.tabIndex = head === this.head ? 0 : -1;
    });
  }

  /* Names what is shown now; the given title is that of what was shown first. */
  drawName() {
    const { labels, model, corpus, lens, level, source, example, examples } = this.page;
    const name = this.settings.names[labels[this.head]];
    const { title, head, example: first } = this.settings;
    const own = head === this.head && first === example ? title : "";
    this.name.replaceChildren(`Head ${labels[this.head]}${name ? `: ${name}` : ""}`,
      element("small", {}, `${this.summary}, here`));
    const { total } = this;
    const number = total > 1 ? this.placeOf(example) + 1 : example + 1;
    const place = examples === 1 ? "" : total === 1 || total === examples
      ? `example ${number} of ${examples}`
      : `example ${number} of ${total} (${example + 1} of ${examples} in the corpus)`;
    const text = `${level === "word" ? "words" : "tokens"} of ${corpus === "own-text" ? "your text" : corpus}`;
    const measure = lens === "norm" ? "weights times the norms of value vectors" : "";
    this.facts.textContent = [own, model, text, measure, place, source].filter(Boolean).join(" · ");
    if (this.root.id === "viewer") {
      document.title = `${own || model} · head ${labels[this.head]}, example ${number}`;
    }
  }

  // -- One head

  drawHead() {
    this.table.hidden = this.tools.hidden = false;
    this.copied.textContent = "";
    this.markHead();
    this.drawName();
    this.drawLegend();
    this.drawing.parentNode.classList.toggle("av-two", Boolean(this.other));
    this.layOut();
    const title = (text) => (this.other ? [element("p", { class: "av-title" }, text)] : []);
    this.drawing.replaceChildren(...title(`Head ${this.page.labels[this.head]}`), this.drawMap());
    this.second.replaceChildren();
    this.twin = null;
    if (this.other) this.drawSecond(title(this.besideName));
    this.drawFocus();
    this.drawVerdicts();
    this.drawTable();
  }

  /* The second drawing has a map of its own and shares all else with this view, its prototype. */
  drawSecond(title) {
    const { beside, besideName } = this;
    const place = this.page.labels.indexOf(beside);
    this.twin = Object.assign(Object.create(this), { owner: this, map: this.other, drawing: this.second,
      head: place < 0 ? this.head : place, hasNoAnswers: place < 0,
      caption: place < 0 ? besideName : null });
    this.twin.layOut();
    this.second.replaceChildren(...title, this.twin.drawMap());
  }

  drawLegend() {
    const { colors, labels } = this.look;
    const kinds = Object.keys(labels).filter((kind) => this.kept.some(
      (i) => this.page.kinds[i] === kind));
    const key = (color, text, dashed = "") => element("span", {},
      svg("svg", { width: 20, height: 8, "aria-hidden": "true" },
        svg("line", { x1: 0, x2: 20, y1: 4, y2: 4, stroke: color, "stroke-width": 2.5,
          "stroke-dasharray": dashed })), text);
    const marks = [key(colors.muted, "other attention"), key(colors.right, "right"),
      key(colors.wrong, "wrong"), key(colors.wrong, this.relation === EVERY
        ? "what would be right (of the token that you point at)" : "what would be right", "4 3")];
    this.legend.replaceChildren(...(this.marked.length ? marks
      : kinds.map((kind) => key(colors[kind], `to ${labels[kind]}`))),
    element("span", {}, "The stronger a line, the more attention."));
  }

  layOut() {
    const { tokens } = this.page;
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = FONT;
    const narrow = this.drawing.clientWidth < 480; // a phone: nothing is shrunk, or it cannot be read
    const most = narrow ? 10 : 22;
    this.shown = tokens.map((word) => (word.length > most ? `${word.slice(0, most - 1)}…` : word));
    const widest = Math.ceil(Math.max(20, ...this.shown.map((word) => pen.measureText(word).width))) + 8;
    pen.font = SMALL_FONT;
    this.arcs = this.showLabels && !this.other ? this.layOutArcs(pen, narrow) : { width: 0 };
    const numbers = narrow ? 34 : 40;
    const room = (this.drawing.clientWidth || 640) - 2 * (widest + numbers) - this.arcs.width;
    const middle = Math.max(narrow ? 60 : 110, Math.min(300, room));
    const left = numbers + widest;
    this.x = { numberLeft: numbers - 4, left, lines: [left + 2, left + 2 + middle],
      right: left + 4 + middle, numberRight: left + 4 + middle + widest + numbers - 6,
      arcs: left + 4 + middle + widest + numbers + 4 };
    this.size = { width: this.x.arcs + this.arcs.width, height: this.kept.length * ROW + 30 };
    this.row = new Map(this.kept.map((position, row) => [position, 24 + row * ROW + ROW / 2]));
  }

  drawMap() {
    const { page, x, size } = this;
    const label = `Attention of head ${page.labels[this.head]}: ${this.summary}. `
      + "The same weights are in the table below.";
    this.lines = svg("g", { class: "av-lines", fill: "none" }, ...this.visible().map(
      ([query, key, weight]) => this.line(query, key, weight)));
    this.focusLines = svg("g", { class: "av-focus", fill: "none" });
    this.texts = { left: new Map(), right: new Map() };
    const columns = this.kept.flatMap((i) => [this.token(i, "left"), this.token(i, "right")]);
    const heading = (at, anchor, text) => svg("text", { x: at, y: 12, "text-anchor": anchor,
      class: "av-column" }, text);
    this.svg = svg("svg", { class: "av-svg", viewBox: `0 0 ${size.width} ${size.height}`,
      width: size.width, height: size.height, role: "group", "aria-label": label,
      onpointerleave: () => this.hover(null) },
    heading(x.left - 4, "end", "from"), heading(x.right + 4, "start", "to"),
    this.arcs.way ? heading(x.arcs, "start", this.arcs.way) : null,
    this.drawLabels(), this.lines, this.focusLines, this.drawMarked(),
    svg("g", {}, ...columns));
    return this.svg;
  }

  /* The lines that can be seen, strongest last; of very many the strongest. */
  visible() {
    const found = [];
    for (const query of this.kept) {
      for (const key of this.kept) {
        const weight = this.weight(query, key);
        if (weight >= FAINTEST) found.push([query, key, weight]);
      }
    }
    return found.sort((a, b) => a[2] - b[2]).slice(-MOST_LINES);
  }

  line(query, key, weight, attributes = {}) {
    return svg("line", {
      x1: this.x.lines[0], y1: this.row.get(query), x2: this.x.lines[1], y2: this.row.get(key),
      stroke: this.look.colors[this.page.kinds[key]], "stroke-opacity": weight.toFixed(4),
      "data-query": query, "data-key": key, "data-weight": weight.toFixed(6), ...attributes,
    });
  }

  token(position, side) {
    const y = this.row.get(position);
    const onLeft = side === "left";
    const edge = onLeft ? this.x.left - 4 : this.x.right + 4;
    const kind = this.page.kinds[position];
    const back = svg("rect", { class: "av-back", y: y - ROW / 2, height: ROW, rx: 3,
      x: onLeft ? 0 : this.x.right, width: this.x.left });
    const word = svg("text", { x: edge, y, "text-anchor": onLeft ? "end" : "start",
      "dominant-baseline": "central",
        fill: this.look.colors[kind === "other" ? "ink" : kind] }, this.shown[position]);
    const number = svg("text", { class: "av-number", y, "dominant-baseline": "central",
      x: onLeft ? this.x.numberLeft : this.x.numberRight, "text-anchor": "end" });
    const group = svg("g", { class: "av-token", [`data-${side}`]: position,
      onpointerenter: () => this.hover(position), onclick: () => this.pin(position) },
    svg("title", {}, this.page.tokens[position]), back, word, number);
    if (onLeft) {
      fill(group, { role: "button", tabindex: this.texts.left.size ? -1 : 0,
        "aria-label": `${this.page.tokens[position]}, position ${position}`,
        onfocus: () => this.hover(position), onblur: () => this.hover(null),
        onkeydown: (event) => this.stepToken(event, position) }, []);
    } else group.setAttribute("aria-hidden", "true");
    this.texts[side].set(position, { group, back, number });
    return group;
  }

  stepToken(event, position) {
    const { kept } = this;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step === undefined && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (step === undefined) {
      this.pin(position);
      return;
    }
    const next = kept[kept.indexOf(position) + step];
    if (next === undefined) return;
    this.texts.left.get(position).group.setAttribute("tabindex", -1);
    const { group } = this.texts.left.get(next);
    group.setAttribute("tabindex", 0);
    group.focus();
  }

  // -- One token: where its attention goes, and what comes to it

  hover(position) {
    if (this.owner) {
      this.owner.hover(position);
      return;
    }
    if (this.hovered === position || !this.map) return;
    this.hovered = position;
    this.drawFocus();
  }

  pin(position) {
    if (this.owner) {
      this.owner.pin(position);
      return;
    }
    if (!this.map) return;
    this.pinned = this.pinned === position ? null : position;
    this.drawControls();
    this.drawFocus();
    this.drawTable();
    this.tellLink();
  }

  drawFocus() {
    const { focus, kept } = this;
    if (!this.svg) return;
    this.svg.classList.toggle("av-focused", focus !== null);
    this.svg.classList.toggle("av-questioned", this.marked.length > 0);
    const pairs = focus === null ? [] : kept.flatMap((other) => (other === focus
      ? [[focus, focus]] : [[focus, other], [other, focus]]));
    this.focusLines.replaceChildren(...pairs
      .map(([query, key]) => [query, key, this.weight(query, key)])
      .filter((pair) => pair[2] >= 0.001)
      .sort((a, b) => a[2] - b[2])
      .map((pair) => this.line(...pair, { "stroke-width": 2.2 })));
    for (const side of ["left", "right"]) {
      for (const [position, { group, back, number }] of this.texts[side]) {
        const weight = focus === null ? 0
          : side === "left" ? this.weight(position, focus) : this.weight(focus, position);
        back.style.fillOpacity = (0.55 * weight).toFixed(3);
        number.textContent = weight >= 0.0005 ? percent(weight) : "";
        group.classList.toggle("av-attended", weight >= 0.0005);
        group.classList.toggle("av-chosen", position === focus);
        group.classList.toggle("av-pinned", position === this.pinned);
      }
    }
    this.svg.classList.toggle("av-every", this.relation === EVERY);
    this.svg.querySelectorAll("[data-arc]").forEach((arc) => arc.classList.toggle("av-own",
      arc.getAttribute("data-arc").split(" ").includes(String(focus))));
    if (this.owner) return;
    this.twin?.drawFocus();
    this.describe();
  }

  describe() {
    const { focus } = this;
    if (focus === null) {
      this.status.textContent = "Point at a token, or tab to it, to see where its attention goes "
        + "and what comes to it; a click keeps it.";
      return;
    }
    const name = (pair) => `${this.shown[pair[0]]} ${percent(pair[1])}`;
    this.status.replaceChildren(element("b", {}, this.shown[focus]), " attends to ",
      this.strongest(focus, true, 3).map(name).join(", "), " · gets most from ",
      this.strongest(focus, false, 3).map(name).join(", "));
  }

  strongest(position, outgoing, count) {
    return this.kept
      .map((other) => [other, outgoing ? this.weight(position, other)
        : this.weight(other, position)])
      .sort((a, b) => b[1] - a[1]).slice(0, count);
  }

  // -- Syntax and coreference

  layOutArcs(pen, narrow) {
    const chains = this.page.mentions;
    if (chains.length) {
      const names = [...new Set(chains.map((mention) => mention[2]))];
      return { lanes: stack(names.map((name) => {
        const own = chains.filter((mention) => mention[2] === name);
        return { own, first: Math.min(...own.map((m) => m[0])),
          last: Math.max(...own.map((m) => m[1] - 1)), name };
      })), get width() { return 30 + 18 * (1 + Math.max(0, ...this.lanes.map((l) => l.lane))); } };
    }
    const pairs = this.page.questions.map((q) => ({ dependent: q.asked, head: q.gold[0],
      relation: q.relation, first: Math.min(q.asked, q.gold[0]),
      last: Math.max(q.asked, q.gold[0]) }));
    if (!pairs.length) return { width: 0 };
    const name = 6 + Math.ceil(Math.max(...pairs.map((pair) => pen.measureText(pair.relation).width)));
    const laneWidth = narrow ? 7 : 11;
    pairs.sort((a, b) => a.last - a.first - (b.last - b.first));
    pairs.forEach((pair, i) => {
      const inside = pairs.slice(0, i).filter((o) => o.first < pair.last && o.last > pair.first);
      pair.lane = 1 + Math.max(0, ...inside.map((other) => other.lane));
    });
    // If there is room, the column says how the arcs point.
    const way = narrow ? "" : this.reverse ? "syntax: from parent" : "syntax: to parent";
    const width = name + 16 + laneWidth * Math.max(...pairs.map((pair) => pair.lane));
    return { pairs, name, laneWidth, way,
      width: Math.ceil(Math.max(width, pen.measureText(way).width + 4)) };
  }

  drawLabels() {
    const { arcs, x } = this;
    const verdicts = new Map(this.marked.map((q) => [q.asked, q.right]));
    const group = svg("g", { class: "av-arcs", fill: "none", "aria-hidden": "true" });
    for (const { dependent, head, relation, lane } of arcs.pairs ?? []) {
      // An arc points as the attention that is asked about.
      const ends = [this.row.get(dependent), this.row.get(head)];
      const [from, to] = this.reverse ? ends.reverse() : ends;
      const start = x.arcs + arcs.name;
      const end = start + 6 + arcs.laneWidth * lane;
      const verdict = { undefined: "", true: "av-right", false: "av-wrong" }[verdicts.get(dependent)];
      const near = to + Math.sign(from - to) * 2;
      group.append(svg("g", { class: verdict, "data-arc": `${dependent} ${head}` },
        svg("text", { x: x.arcs, y: this.row.get(dependent), "dominant-baseline": "central" }, relation),
        svg("path", { d: `M${start} ${from}C${end} ${from} ${end} ${near} ${start} ${near}` }),
        svg("path", { class: "av-tip", d: `M${start - 3} ${near}l5 -3v6z` })));
    }
    for (const { own, name, lane } of arcs.lanes ?? []) {
      group.append(this.chain(own, name, x.arcs + 12 + 18 * lane));
    }
    return group;
  }

  chain(mentions, name, x) {
    const color = CHAINS[name % CHAINS.length];
    const span = ([start, end]) => [this.row.get(start) - ROW / 2 + 2,
      this.row.get(end - 1) + ROW / 2 - 2];
    const sorted = mentions.map(span).sort((a, b) => a[0] - b[0]);
    const places = mentions.flatMap(([start, end]) => Array.from({ length: end - start },
      (_, i) => start + i));
    return svg("g", { class: "av-chain", "data-arc": places.join(" "), stroke: color },
      svg("line", { x1: x, x2: x, y1: sorted[0][0], y2: sorted.at(-1)[1], "stroke-width": 1 }),
      ...sorted.flatMap(([top, bottom]) => [
        svg("line", { x1: x, x2: x, y1: top, y2: bottom, "stroke-width": 5 }),
        svg("text", { x: x + 5, y: (top + bottom) / 2, "dominant-baseline": "central",
          fill: color }, String(name))]));
  }

  /* The answers. A line is as dark as its weight, here too; the dots at its ends are always seen. */
  drawMarked() {
    const group = svg("g", { class: "av-marked", fill: "none" });
    const thin = this.relation === EVERY;
    for (const question of this.marked) {
      const draw = (answer, kind, attributes) => {
        const [query, key] = this.pair(question, answer);
        group.append(this.line(query, key, this.weight(query, key), {
          stroke: this.look.colors[kind], "data-arc": `${query} ${key}`, ...attributes }));
        return [[this.x.lines[0], query], [this.x.lines[1], key]];
      };
      const kind = question.right ? "right" : "wrong";
      if (question.picked !== (question.read ?? question.asked)) { // or the head picks no word
        const ends = draw(question.picked, kind, { class: "av-picked", "stroke-width": thin ? 1.3 : 2.4 });
        group.append(...ends.map(([cx, token]) => svg("circle", { cx, cy: this.row.get(token),
          r: thin ? 1.6 : 2.8, "data-arc": ends.map((end) => end[1]).join(" "),
          fill: this.look.colors[kind] })));
      }
      if (question.right) continue;
      question.gold.forEach((gold) => draw(gold, kind, { class: "av-missed", "stroke-opacity": 1,
        "stroke-width": thin ? 1 : 1.4, "stroke-dasharray": "4 3" }));
    }
    return group;
  }

  /* Who attends to whom, in words; if every relation is marked, folded by relation. */
  drawVerdicts() {
    const { marked } = this;
    const list = (questions) => element("ul", {}, ...questions.map((q) => this.verdict(q)));
    if (this.relation !== EVERY) {
      this.verdicts.replaceChildren(...(marked.length ? [list(marked)] : []));
      return;
    }
    const names = [...new Set(marked.map((q) => q.relation))].sort();
    this.verdicts.replaceChildren(...names.map((name) => {
      const own = marked.filter((q) => q.relation === name);
      return element("details", { "data-relation": name },
        element("summary", {}, `${name}: ${tally(own)}`), list(own));
    }));
  }

  verdict(question) {
    const { tokens } = this.page;
    const words = (places) => places.map((place) => tokens[place]).join(" / ");
    const { asked, read = asked, picked, gold, right, relation } = question;
    const name = read === asked ? tokens[asked] : `${tokens[asked]} ${tokens[read]}`;
    const ends = this.isReverse ? [tokens[picked], name] : [name, tokens[picked]];
    const answer = picked === read ? `${name}: no word` : ends.join(" attends to ");
    return element("li", { class: right ? "av-right" : "av-wrong", "data-asked": asked,
      "data-picked": picked }, `${relation}: ${answer} `,
    right ? "✓ right" : `✗ wrong, ${words(gold)} would be right`);
  }

  // -- The picture to take along

  /* The drawing without the style sheet: each mark has its style, in light colours. */
  standalone() {
    const copy = this.svg.cloneNode(true);
    const nodes = (picture) => [...picture.querySelectorAll("*")];
    const { colorScheme } = this.root.style;
    this.root.style.colorScheme = "light";
    this.lines.style.transition = "none"; // as they will be, if they just change
    const originals = nodes(this.svg);
    nodes(copy).forEach((node, i) => freeze(node, getComputedStyle(originals[i])));
    this.lines.style.transition = "";
    this.root.style.colorScheme = colorScheme;
    for (const name of ["class", "role", "aria-label"]) copy.removeAttribute(name);
    fill(copy, { xmlns: "http://www.w3.org/2000/svg", "font-family": FAMILY }, []);
    const name = `Head ${this.page.labels[this.head]} of ${this.page.model}: ${this.summary}`;
    copy.prepend(svg("title", {}, name), svg("rect", { ...this.size, fill: "#ffffff" }));
    return new XMLSerializer().serializeToString(copy);
  }

  async copy() {
    const text = this.standalone();
    const file = `head-${this.page.labels[this.head]}.svg`;
    try {
      await navigator.clipboard.writeText(text);
      this.copied.textContent = "Copied: paste it into a drawing program, or into a file.";
    } catch { // no permission, or no clipboard
      const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
      element("a", { href: address, download: file }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      this.copied.textContent = `The clipboard was refused; ${file} is downloaded.`;
    }
  }

  // -- The same without a picture

  drawTable() {
    const body = this.table.lastElementChild;
    if (!this.table.open || !this.map) return;
    const { pinned, kept } = this;
    const { tokens } = this.page;
    const names = (pairs) => pairs.map(([other, weight]) => `${tokens[other]} ${percent(weight)}`)
      .join(", ");
    const chosen = kept.includes(pinned) ? pinned : null;
    const columns = chosen === null ? ["token", "attends most to", "gets most from"]
      : ["token", `from ${tokens[chosen]}`, `to ${tokens[chosen]}`];
    const rows = kept.map((i) => (chosen === null
      ? [names(this.strongest(i, true, 3)), names(this.strongest(i, false, 3))]
      : [this.weight(chosen, i).toFixed(4), this.weight(i, chosen).toFixed(4)]));
    body.replaceChildren(element("table", {},
      element("caption", {}, `Head ${this.page.labels[this.head]}`,
        chosen === null ? "; choose a token for all its weights" : ""),
      element("thead", {}, element("tr", {}, ...columns.map((name) => element("th",
        { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map((cells, row) => element("tr", {},
        element("th", { scope: "row" }, tokens[kept[row]]),
        ...cells.map((cell) => element("td", {}, cell)))))));
  }
}

const relationName = (relation) => (relation === EVERY ? "every relation" : relation);
const tally = (questions) => `${questions.filter((q) => q.right).length} of ${questions.length} right`;
const sameWord = (token, word) => token.replace(/^[Ġ▁ ]/, "").toLowerCase() === word.toLowerCase();

const hasRelation = (page, relation) => page.questions.some(
  (q) => relation === EVERY || q.relation === relation);

/* Where a word is for the nth time, or null. */
function findWord(tokens, word, nth = 1) {
  return tokens.map((_, i) => i).filter((i) => sameWord(tokens[i], word))[nth - 1] ?? null;
}

/* Writes the style of a mark into the mark. */
function freeze(node, style) {
  if (style.display === "none") {
    node.remove();
    return;
  }
  const central = node.getAttribute("dominant-baseline") === "central"; // not in every program
  for (const { name } of [...node.attributes]) {
    if (/^(class|style|role|tabindex|dominant-baseline)$|^(aria|data)-/.test(name)) {
      node.removeAttribute(name);
    }
  }
  if (central) node.setAttribute("dy", "0.35em");
  if (node.tagName === "g") node.removeAttribute("stroke"); // each mark has its own, or none
  const names = node.tagName === "g" ? ["opacity"] : node.tagName === "title" ? [] : COPIED;
  for (const name of names) {
    const value = style.getPropertyValue(name);
    const isFont = /^(font|text)/.test(name);
    if (isFont ? node.tagName === "text" : value !== DEFAULTS[name]) node.setAttribute(name, value);
    else node.removeAttribute(name);
  }
}

/* Give each item the first lane in which it overlaps no other. */
function stack(items) {
  const ends = [];
  return items.sort((a, b) => a.first - b.first).map((item) => {
    let lane = ends.findIndex((end) => end < item.first);
    if (lane < 0) lane = ends.length;
    ends[lane] = item.last;
    return { ...item, lane };
  });
}

/* 256 colours, as the pixels of an image hold them. */
function colorRamp(stops) {
  const colors = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: 256 }, (_, value) => {
    const place = (value / 255) * (colors.length - 1);
    const low = Math.min(Math.floor(place), colors.length - 2);
    const [red, green, blue] = [0, 1, 2].map((channel) => Math.round(
      colors[low][channel] + (place - low) * (colors[low + 1][channel] - colors[low][channel])));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

// ---- The two hosts ---------------------------------------------------------------------------

function show(root, settings, source) {
  const colors = Object.fromEntries(Object.entries(settings.look.colors)
    .map(([name, light]) => [name, `light-dark(${light}, ${DARK[name]})`]));
  return new View(root, source, { ...settings, look: { ...settings.look, colors } });
}

/* A page: its address says what is shown, as in #head=3-1&word=plan&example=2&relation=dobj. A page
   in a frame has no address; there the page around it sends {attentionViewer: {head: "3-1"}}. */
function start(root, data) {
  const view = show(root, data, embedded(data));
  const followAddress = () => {
    if (window.location.hash.length > 1) {
      view.follow(Object.fromEntries(new URLSearchParams(window.location.hash.slice(1))));
    }
  };
  if (window.location.protocol !== "about:") {
    window.addEventListener("hashchange", followAddress);
    followAddress();
    view.ready.then(() => {
      view.onlink = (link) => window.history.replaceState(null, "", `#${new URLSearchParams(link)}`);
    });
  }
  window.addEventListener("message", ({ source, data: message }) => {
    const link = message?.attentionViewer;
    if (source === window.parent && link && typeof link === "object") view.follow(link);
  });
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (window.frameElement) window.frameElement.style.height = `${root.offsetHeight + 8}px`;
    if (Math.abs(root.clientWidth - width) < 20) return;
    width = root.clientWidth;
    if (view.map) view.drawHead();
  }).observe(root);
}

export default {
  /* The cell's output is an element with a page without a kernel. While there is a kernel, the view
     takes the page's place; the saved notebook keeps the page. */
  initialize({ model, experimental }) {
    const settings = model.get("settings");
    const source = kernel(experimental.invoke, settings);
    const takeOver = () => {
      const selector = `[data-attention-viewer="${settings.output}"]`;
      for (const place of document.querySelectorAll(selector)) {
        delete place.dataset.attentionViewer;
        show(place, settings, source);
      }
    };
    const observer = new MutationObserver(takeOver); // the output may come later, and again
    observer.observe(document.body, { childList: true, subtree: true });
    takeOver();
    return () => {
      observer.disconnect();
      source.close();
    };
  },
};
