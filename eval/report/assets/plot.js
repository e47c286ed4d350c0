// As wide as the window allows, because a drawing that is shrunk has labels too small to read.
const PLOT = { width: Math.max(320, Math.min(800, document.documentElement.clientWidth - 32)), height: 400, left: 70, right: 30, top: 20, bottom: 50 };

const EDGE = 6; // between a name and the edge of the drawing

// One metric over the denoise speedup: a point with intervals for each variant, and the Pareto front.
function buildPlot() {
  const speed = data.figures.find((figure) => figure.key === "denoise_speedup");
  const choices = data.figures.filter((figure) => !["x", "s", "J"].includes(figure.unit) && pointsOf(figure).length);
  byId("plot-section").hidden = !choices.length;
  if (!choices.length) return;
  const select = byId("plot-metric");
  select.append(...choices.map((figure) => make("option", { value: figure.key }, heading(figure))));
  select.value = data.worstFirst;
  if (!select.value) select.selectedIndex = 0;
  const show = () => byId("plot").replaceChildren(...drawPlot(speed, choices[select.selectedIndex]));
  select.addEventListener("change", show);
  show();
}

const pointsOf = (metric) =>
  data.variants
    .map((variant) => ({ variant, x: variant.estimates.denoise_speedup, y: variant.estimates[metric.key] }))
    .filter((point) => point.x && point.y);

function drawPlot(speed, metric) {
  const points = pointsOf(metric);
  const shown = points.filter((point) => Number.isFinite(point.y.mean));
  const rest = points.filter((point) => !shown.includes(point)).map((point) => point.variant.name);
  const parts = [];
  if (shown.length) parts.push(drawAxes(shown, speed, metric));
  byId("plot-legend").replaceChildren(...(shown.length ? legend(shown) : []));
  if (parts.some((part) => part.querySelectorAll(".point").length > part.querySelectorAll(".name").length)) {
    parts.push(make("p", { class: "hint" }, "Points without a name had no room for it: put the mouse on one, or see the colours of the table."));
  }
  if (rest.length) parts.push(make("p", { class: "hint" }, `Not drawn, since the mean is infinite: ${rest.join(", ")}.`));
  return parts;
}

// Of every mark in the drawing.
function legend(points) {
  const dot = () => draw("circle", { cx: 8, cy: 5, r: 5 });
  const marks = [[[draw("line", { class: "front", x1: 0, x2: 18, y1: 5, y2: 5 })], "front: no variant is both faster and nearer to the baseline", ""]];
  if (points.some((point) => point.x.low !== null || point.y.low !== null)) {
    marks.push([[draw("line", { class: "bar", x1: 0, x2: 18, y1: 5, y2: 5 })], "95 % interval over prompts", ""]);
  }
  marks.push(isRunDisturbed ? [[dot()], "seconds disturbed by other work", "disturbed"] : [[dot()], "mean over all videos", ""]);
  return marks.flatMap(([shapes, text, kind]) => [draw("svg", { class: kind, viewBox: "0 0 18 10", "aria-hidden": "true" }, ...shapes), text]);
}

function drawAxes(points, speed, metric) {
  const x = scale(points.map((point) => point.x), PLOT.left, PLOT.width - PLOT.right);
  const y = scale(points.map((point) => point.y), PLOT.height - PLOT.bottom, PLOT.top);
  const bottom = PLOT.height - PLOT.bottom;
  const svg = draw("svg", {
    viewBox: `0 0 ${PLOT.width} ${PLOT.height}`,
    role: "img",
    "aria-label": `${heading(metric)} over ${speed.title}. ${points.map((point) => describe(point, speed, metric)).join(". ")}`,
  });
  for (const tick of x.ticks) {
    svg.append(draw("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: PLOT.top, y2: bottom }));
    svg.append(draw("text", { x: x.at(tick), y: bottom + 20, "text-anchor": "middle" }, `${x.label(tick)}x`));
  }
  for (const tick of y.ticks) {
    svg.append(draw("line", { class: "grid", x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y.at(tick), y2: y.at(tick) }));
    svg.append(draw("text", { x: PLOT.left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, metric.unit === "%" ? `${Math.round(100 * tick)} %` : y.label(tick)));
  }
  const middle = (PLOT.left + PLOT.width - PLOT.right) / 2;
  svg.append(draw("text", { x: middle, y: PLOT.height - 8, "text-anchor": "middle" }, `${speed.title}${speed.isDisturbed ? " (disturbed)" : ""}, faster to the right`));
  const direction = metric.higher_is_better ? "better upwards" : "better downwards";
  const better = metric.best === null ? direction : `best at ${metric.best}`;
  svg.append(
    draw("text", { transform: `translate(16 ${(PLOT.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, `${heading(metric)}, ${better}`),
  );
  const front = frontOf(points, metric);
  svg.append(draw("polyline", { class: "front", points: front.map((point) => `${x.at(point.x.mean)},${y.at(point.y.mean)}`).join(" ") }));
  const taken = points.map((point) => ({ left: x.at(point.x.mean) - 9, width: 18, y: y.at(point.y.mean) + 5 }));
  for (const point of points) svg.append(drawPoint(point, x, y, taken, describe(point, speed, metric)));
  return svg;
}

function drawPoint(point, x, y, taken, description) {
  const [cx, cy] = [x.at(point.x.mean), y.at(point.y.mean)];
  const group = draw("g", { class: `point tone${point.variant.index % 8}${isRunDisturbed ? " disturbed" : ""}` }, draw("title", {}, description));
  if (point.x.low !== null) group.append(draw("line", { x1: x.at(point.x.low), x2: x.at(point.x.high), y1: cy, y2: cy }));
  if (point.y.low !== null) group.append(draw("line", { x1: cx, x2: cx, y1: y.at(point.y.low), y2: y.at(point.y.high) }));
  const name = fitted(point.variant.name, PLOT.width - PLOT.left - EDGE);
  const width = widthOf(name);
  const last = PLOT.width - EDGE - width;
  // Wherever the name lies in the drawing, and on no other name and on no point; a crowd of points has no room for all.
  const beside = cx + 9 <= last ? [cx + 9, cx - 9 - width] : [cx - 9 - width, last];
  const places = beside.flatMap((left) => [-11, 21, -27, 37].map((down) => ({ left, width, y: cy + down })));
  const isFree = ({ left, y }) =>
    left >= PLOT.left && left <= last && y > PLOT.top && y < PLOT.height - PLOT.bottom &&
    taken.every((other) => left > other.left + other.width || other.left > left + width || Math.abs(other.y - y) > 15);
  group.append(draw("circle", { cx, cy, r: 7 }));
  const place = places.find(isFree);
  if (place) {
    taken.push(place);
    group.append(draw("text", { class: "name", x: place.left, y: place.y }, name));
  }
  return group;
}

// Pixels of a name in the plot's letters.
const pen = document.createElement("canvas").getContext("2d");
function widthOf(name) {
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(name).width;
}

// A name that is wider than the drawing loses its end; the title of the point has all of it.
function fitted(name, most) {
  if (widthOf(name) <= most) return name;
  let length = name.length;
  while (length > 1 && widthOf(`${name.slice(0, length)}…`) > most) length--;
  return `${name.slice(0, length)}…`;
}

function describe(point, speed, metric) {
  const part = (estimate, figure) =>
    withUnit(estimate.mean, figure) + (estimate.low === null ? "" : ` (${format(estimate.low, figure)} to ${format(estimate.high, figure)})`);
  return `${point.variant.name}: ${speed.title} ${part(point.x, speed)}, ${metric.title} ${part(point.y, metric)}`;
}

function frontOf(points, metric) {
  const worse = (point) => badness(point.y.mean, metric);
  const beats = (a, b) => a.x.mean >= b.x.mean && worse(a) <= worse(b) && (a.x.mean > b.x.mean || worse(a) < worse(b));
  return points.filter((point) => !points.some((other) => beats(other, point))).sort((a, b) => a.x.mean - b.x.mean);
}

// Round ticks around all means and intervals; `from` and `to` are pixels.
function scale(estimates, from, to) {
  const ends = estimates.flatMap((estimate) => [estimate.mean, estimate.low ?? estimate.mean, estimate.high ?? estimate.mean]);
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.08 * (high - low) || 0.05 * Math.abs(high) || 1;
  [low, high] = [low - margin, high + margin];
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let count = Math.ceil(low / step); count * step <= high; count++) ticks.push(count * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks, label: (tick) => tick.toFixed(digits) };
}
