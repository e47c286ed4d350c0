const shown = new Set(data.variants.map((variant) => variant.index));
// Columns: a row's seconds and joules stand below its videos, because the worst of them says little.
const ranked = data.figures.filter((figure) => !["s", "J"].includes(figure.unit));
let current = null; // the row that the space key plays
let sorted = []; // all rows
let onPage = []; // the rows of this page, with their elements: a thousand rows at once would take seconds to lay out

const byStrip = new WeakMap();
const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const { player } = byStrip.get(entry.target);
      entry.isIntersecting ? player.load() : player.unload();
    }
  },
  { rootMargin: "300px" },
);

function buildPrompts() {
  const columns = [
    { title: "prompt", ascending: true, value: (row) => row.prompt },
    { title: "seed", ascending: true, value: (row) => row.seed },
    ...ranked.map((figure) => ({
      key: figure.key,
      title: heading(figure),
      note: [worstName(figure), disturbedNote(figure)].filter(Boolean).join(", "),
      // The worst first, because these rows need a look.
      ascending: figure.higher_is_better,
      value: (row) => (figure.best === null ? rank(row, figure) : -badness(rank(row, figure), figure)),
    })),
  ];
  const worstFirst = columns.find((column) => column.key === data.worstFirst);
  const place = (rows) => {
    sorted = rows;
    showPage(0);
  };
  const sort = makeSortable(byId("prompts"), data.rows, columns, place, worstFirst);
  buildFilters(sort);
  buildPagers();
  sort();
  listenForSpace();
}

const worstName = (figure) =>
  figure.best !== null ? `farthest from ${figure.best}` : figure.higher_is_better ? "lowest" : "highest";

// Put the rows of a page, counted from 0, into the table.
function showPage(page) {
  const fitting = sorted.filter(readFilters());
  page = showPlace(page, fitting.length);
  for (const row of onPage) {
    row.player.unload();
    near.unobserve(row.strip);
    row.element.remove();
  }
  current = null;
  onPage = fitting.slice(page * ROWS, (page + 1) * ROWS).map(buildRow);
  byId("prompts").append(...onPage.map((row) => row.element));
  for (const row of onPage) near.observe(row.strip);
}

// A row's value of a figure: the worst of the variants shown, or the baseline's if no other variant is shown.
function rowValue(row, figure) {
  const units = row.units.filter((unit) => shown.has(unit.variant));
  const variants = units.filter((unit) => !data.variants[unit.variant].isBaseline);
  return worstOf((variants.length ? variants : units).map((unit) => unit.values[figure.key]), figure);
}

const rank = (row, figure) => orWorst(hasFailed(row) ? undefined : rowValue(row, figure), figure);

const hasFailed = (row) => row.units.some((unit) => unit.failed && shown.has(unit.variant));

function buildRow(row) {
  const units = row.units.filter((unit) => unit.video);
  const player = new Player(units, row.frames, row.fps);
  const videoOf = new Map(units.map((unit, index) => [unit, player.videos[index]]));
  const shape = units.length ? `${units[0].width} / ${units[0].height}` : "auto";
  const figures = row.units.map((unit) => buildFigure(unit, videoOf.get(unit), shape, player));
  const strip = make("div", { class: "strip" }, ...(units.length ? [player.element] : []), ...figures);
  row.units.forEach((unit, index) => (figures[index].hidden = !shown.has(unit.variant)));
  const failed = make("span", { class: "bad" }, hasFailed(row) ? "failed" : "");
  const cells = ranked.map((figure) => make("td", {}, inTable(rowValue(row, figure), figure)));
  const element = make(
    "tbody",
    {},
    make("tr", {}, make("th", { scope: "rowgroup" }, ...clamped(row.prompt), " ", failed), make("td", {}, String(row.seed)), ...cells),
    make("tr", {}, make("td", { colspan: ranked.length + 2, class: "strip-cell" }, strip)),
  );
  const built = { element, strip, player };
  byStrip.set(strip, built);
  for (const event of ["focusin", "pointerenter"]) element.addEventListener(event, () => makeCurrent(built));
  return built;
}

// A prompt, and for a long one a button that shows all of its text.
function clamped(text) {
  if (text.length <= 160) return [make("div", {}, text)];
  const prompt = make("div", { class: "prompt" }, text);
  const button = make("button", { type: "button", class: "more", "aria-expanded": "false" }, "more");
  button.addEventListener("click", () => {
    const open = prompt.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "less" : "more";
  });
  return [prompt, button];
}

function buildFigure(unit, video, shape, player) {
  const variant = data.variants[unit.variant];
  const values = data.figures.filter((figure) => unit.values[figure.key] !== undefined);
  const picture = video ?? make("p", { class: "absent" }, unit.failed ? unit.reason : unit.absent);
  picture.style.aspectRatio = shape; // so that nothing moves when the video is loaded
  const figure = make("figure", { class: `tone${unit.variant % 8}` });
  figure.append(make("figcaption", {}, swatch(unit.variant), variant.name), picture);
  if (unit.failed) {
    const attempts = `after ${unit.attempts} attempt${unit.attempts > 1 ? "s" : ""}`;
    figure.append(make("details", {}, make("summary", {}, attempts), make("pre", {}, unit.failed)));
    return figure;
  }
  // An empty strip keeps the figures of a row on one line.
  figure.append(unit.steps ? drawTimeline(unit.steps) : make("div", { class: "timeline" }));
  if (unit.sound) figure.append(buildSound(unit, video, player));
  const parts = values.flatMap((value) => [make("dt", {}, named(value)), make("dd", {}, bracketed(unit.values[value.key], value))]);
  figure.append(make("dl", { class: "values" }, ...parts));
  return figure;
}

// One letter a step: c computed, r reused, m some branches reused.
function drawTimeline(steps) {
  const svg = draw("svg", { class: "timeline", viewBox: `0 0 ${steps.length} 12`, preserveAspectRatio: "none", role: "img" });
  const kinds = { c: ["computed", 12], m: ["mixed", 8], r: ["reused", 4] };
  const reused = [];
  for (const { index, 0: run } of steps.matchAll(/c+|m+|r+/g)) {
    const [kind, height] = kinds[run[0]];
    svg.append(draw("rect", { class: kind, x: index, y: 12 - height, width: run.length - 0.1, height }));
    if (run[0] === "r") reused.push(run.length > 1 ? `${index + 1} to ${index + run.length}` : `${index + 1}`);
  }
  const count = steps.split("r").length - 1;
  const text = `${count} of ${steps.length} steps reused${count ? `: ${reused.join(", ")}` : ""}`;
  svg.setAttribute("aria-label", text);
  svg.append(draw("title", {}, text));
  return svg;
}

function makeCurrent(row) {
  current?.element.classList.remove("current");
  current = row;
  row.element.classList.add("current");
}

function listenForSpace() {
  const takesSpace = "button, select, textarea, summary, a, input:not([type=range])";
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest(takesSpace)) return;
    const row = current ?? onPage[0];
    if (!row) return;
    event.preventDefault();
    makeCurrent(row);
    row.player.toggle();
  });
}
