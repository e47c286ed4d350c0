// A table head whose columns sort: `columns` are {key, title, note, ascending (the first click), value(row)}.
function sortableHead(table, columns, first, onSort) {
  const head = make("tr");
  const cells = new Map();
  let order = { key: first.key, ascending: first.ascending };
  for (const column of columns) {
    const button = make("button", { type: "button" }, make("span", {}, column.title));
    if (column.note) button.append(make("small", {}, column.note));
    const cell = make("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      const again = order.key === column.key;
      order = { key: column.key, ascending: again ? !order.ascending : column.ascending };
      apply();
    });
    cells.set(column.key, cell);
    head.append(cell);
  }
  table.append(make("thead", {}, head));

  function apply() {
    for (const [key, cell] of cells) {
      if (key === order.key) cell.setAttribute("aria-sort", order.ascending ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    }
    onSort();
  }

  // Ties keep the order of the job.
  function sorted(rows) {
    const { value } = columns.find((column) => column.key === order.key);
    const sign = order.ascending ? 1 : -1;
    return [...rows].sort((a, b) => sign * compare(value(a), value(b)));
  }

  return { apply, sorted };
}
