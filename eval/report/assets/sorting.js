// Give a table a head whose columns sort `rows`, and return the function that sorts them and hands them to `place`.
// `columns` are {title, note, ascending (the first click), value(row)}.
function makeSortable(table, rows, columns, place, first = columns[0]) {
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
    const keyed = rows.map((row) => [sorted.value(row), row]);
    place(keyed.sort(([a], [b]) => sign * compare(a, b)).map(([, row]) => row));
  }

  return apply;
}

// What `place` is where every row has an element: put them into `body` in order.
const appendTo = (body) => (rows) => body.append(...rows.map((row) => row.element));
