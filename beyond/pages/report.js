/* Tables sort by the column whose heading is clicked; a second click turns the order round. */
for (const table of document.querySelectorAll("table")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const descending = heading.getAttribute("aria-sort") === "ascending";
    const sign = descending ? -1 : 1;
    const numeric = heading.classList.contains("number");
    const text = (row) => row.cells[column].textContent;
    const compare = (a, b) => {
      if (!text(a) || !text(b)) return Number(!text(a)) - Number(!text(b)); // empty cells stay last
      return sign * (numeric ? parseFloat(text(a).replace("< ", "")) - parseFloat(text(b).replace("< ", ""))
        : text(a).localeCompare(text(b), "en", { numeric: true }));
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }));
}

/* A figure opens in its full size, to scroll over: the column of a phone is too narrow for it. */
const large = document.querySelector("dialog");
for (const figure of document.querySelectorAll("figure")) {
  figure.addEventListener("click", () => {
    large.lastElementChild.replaceChildren(figure.querySelector("img").cloneNode());
    large.showModal();
  });
}

/* Long tables can be searched: rows stay in which every word typed begins a word or a number. */
for (const table of document.querySelectorAll("table")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length <= 16) continue;
  const box = document.createElement("input"), count = document.createElement("output");
  Object.assign(box, { type: "search", placeholder: "Find rows", className: "find" });
  box.setAttribute("aria-label", `Find rows: ${table.parentElement.getAttribute("aria-label")}`);
  let texts;
  box.addEventListener("input", () => {
    texts ??= rows.map((row) => [...row.cells].map((cell) => ` ${cell.textContent}`).join("").toLowerCase());
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, i) => { row.hidden = !words.every((word) => texts[i].includes(` ${word}`)); });
    const shown = rows.filter((row) => !row.hidden).length;
    count.value = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  table.parentElement.before(box, count);
}

/* A tile of the atlas opens the first viewer at its head, and marks its relation. */
const atlasFrame = document.querySelector(".viewer iframe");
let chosenTile = null;
let frameListens = false;
const showTile = () => {
  if (!frameListens || !chosenTile) return;
  const link = { relation: "", ...chosenTile.dataset };
  atlasFrame.contentWindow.postMessage({ attentionViewer: link }, "*");
};
window.addEventListener("message", ({ source, data }) => {
  if (source !== atlasFrame?.contentWindow || !data?.attentionViewerListens) return;
  frameListens = true;
  showTile();
});
for (const tile of document.querySelectorAll("button.tile")) {
  tile.addEventListener("click", () => {
    chosenTile = tile;
    atlasFrame.closest("details").open = true;
    atlasFrame.scrollIntoView();
    showTile();
  });
}

/* A link to a folded part unfolds it. */
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", () => {
    const folded = document.querySelector(`${link.getAttribute("href")} > details`);
    if (folded) folded.open = true;
  });
}
