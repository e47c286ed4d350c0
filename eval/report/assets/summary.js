function buildSummary() {
  const columns = [
    { title: "variant", ascending: true, value: (variant) => variant.index },
    { title: "videos", ascending: false, value: (variant) => variant.done },
    ...data.figures.map((figure) => ({
      title: heading(figure),
      note: disturbedNote(figure),
      ascending: !figure.higher_is_better,
      value: (variant) => orWorst(variant.estimates[figure.key]?.mean, figure),
    })),
  ];
  const rows = data.variants.map((variant) => ({ ...variant, element: summaryRow(variant) }));
  const body = make("tbody");
  makeSortable(byId("summary"), rows, columns, appendTo(body))();
  byId("summary").append(body);
}

function summaryRow(variant) {
  const name = make("th", { scope: "row" }, swatch(variant.index), variant.name);
  if (variant.options) name.append(make("small", { title: variant.options }, variant.options));
  const counts = make("td", { "data-title": "videos" }, make("b", {}, String(variant.done)));
  if (variant.failed) counts.append(make("small", { class: "bad" }, `${variant.failed} failed`));
  if (variant.missing) counts.append(make("small", {}, `${variant.missing} not yet`));
  return make("tr", {}, name, counts, ...data.figures.map((figure) => estimateCell(variant.estimates[figure.key], figure)));
}

function estimateCell(estimate, figure) {
  const title = { "data-title": [heading(figure), disturbedNote(figure)].filter(Boolean).join(", ") };
  if (figure.isDisturbed) title.class = "disturbed";
  if (!estimate) return make("td", title, ABSENT);
  const [mean, low, high, worst] = [estimate.mean, estimate.low, estimate.high, estimate.worst].map((value) => inTable(value, figure));
  const cell = make("td", title, make("b", {}, mean));
  const small = (text) => make("small", {}, text);
  if (low !== high) cell.append(small(`${low} to ${high}`));
  if (worst !== mean) cell.append(small(`worst ${worst}`));
  return cell;
}
