function buildFilters(update) {
  const form = byId("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("filter-metric").append(...data.figures.map((figure) => make("option", { value: figure.key }, heading(figure))));
  byId("filter-metric").value = data.worstFirst;
  byId("filter-failed-label").hidden = !data.rows.some((row) => row.units.some((unit) => unit.failed));
  for (const variant of data.variants) {
    const box = make("input", { type: "checkbox", value: variant.index });
    box.checked = true;
    box.addEventListener("input", () => shown[box.checked ? "add" : "delete"](variant.index));
    byId("filter-variants").append(make("label", {}, box, " ", swatch(variant.index), variant.name));
  }
  form.addEventListener("input", update);
}

// A function that returns whether a row fits the form.
function readFilters() {
  const text = byId("filter-text").value.trim().toLocaleLowerCase();
  const figure = data.figures.find((candidate) => candidate.key === byId("filter-metric").value);
  const percent = figure.unit === "%";
  byId("filter-direction").textContent = `is ${figure.higher_is_better ? "below" : "above"}${percent ? " (in %)" : ""}`;
  const typed = byId("filter-limit").valueAsNumber;
  const limit = percent ? typed / 100 : typed;
  const onlyFailed = byId("filter-failed").checked;
  const isWorse = (value) => Number.isNaN(limit) || (figure.higher_is_better ? value < limit : value > limit);
  return (row) =>
    row.prompt.toLocaleLowerCase().includes(text) && isWorse(rank(row, figure)) && (!onlyFailed || hasFailed(row));
}
