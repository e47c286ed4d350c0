// VBench: points by dimension and variant, and how many of them a variant lost against the baseline.
function buildBenchmark(benchmark) {
  const columns = [
    { title: "dimension", ascending: true, value: (row) => row.place },
    ...data.variants.map((variant) => ({
      title: variant.name,
      ascending: true,
      value: (row) => row.cells[variant.index]?.points ?? -Infinity,
    })),
  ];
  const rows = benchmark.rows.map((row, place) => ({ ...row, place, element: benchmarkRow(row) }));
  const [table, body] = [make("table"), make("tbody")];
  makeSortable(table, rows, columns, appendTo(body))();
  table.append(body);
  const notes = benchmark.notes.map((note) => make("p", { class: "hint" }, note));
  return make("section", {}, make("h2", {}, benchmark.title), make("div", { class: "scroll" }, table), ...notes);
}

function benchmarkRow(row) {
  const cells = row.cells.map((cell) => {
    if (!cell) return make("td", {}, ABSENT);
    const element = make("td", {}, make("b", {}, cell.points.toFixed(2) + (cell.isPartial ? "*" : "")));
    if (cell.drop !== undefined) {
      const interval = cell.low === null ? "" : ` (${cell.low.toFixed(2)} to ${cell.high.toFixed(2)})`;
      element.append(make("small", {}, `drop ${cell.drop.toFixed(2)}${interval}`));
    }
    return element;
  });
  return make("tr", row.isTotal ? { class: "total" } : {}, make("th", { scope: "row" }, row.name), ...cells);
}
