// Give a table a head whose columns sort `rows`, and return the function that puts their elements into `body` in order.
// `columns` are {title, note, ascending (the first click), value(row)}.
function makeSortable(table, body, rows, columns, first = columns[0]) {
  let sorted = first;
  let ascending = first.ascending;
  const cells = columns.map((column) => {
    const button = make("button", { type: "button" }, make("span", {}, column.title));
    if (column.note) button.append(make("small", {}, column.note));
    button.addEventListener("click", () => {
      ascending = column === sorted ? !ascending : column.ascending;
      sorted = column;
      apply();
    });
    return make("th", { scope: "col" }, button);
  });
  table.append(make("thead", {}, make("tr", {}, ...cells)));

  function apply() {
    for (const cell of cells) cell.removeAttribute("aria-sort");
    cells[columns.indexOf(sorted)].setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const sign = ascending ? 1 : -1;
    // Ties keep the order of the job.
    const inOrder = [...rows].sort((a, b) => sign * compare(sorted.value(a), sorted.value(b)));
    body.append(...inOrder.map((row) => row.element));
  }

  return apply;
}
