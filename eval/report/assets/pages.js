const ROWS = 20; // of a page

// The same controls above and below the table.
function buildPagers() {
  for (const pager of document.querySelectorAll(".pager")) {
    const [back, forth] = ["‹ Previous", "Next ›"].map((text) => make("button", { type: "button", class: "turn" }, text));
    back.addEventListener("click", () => turn(pager, -1));
    forth.addEventListener("click", () => turn(pager, 1));
    const number = make("input", { type: "number", min: 1, step: 1, "aria-label": "page" });
    number.addEventListener("change", () => turn(pager, number.valueAsNumber - 1 - Number(pager.dataset.page)));
    pager.append(back, make("label", {}, "Page ", number, " ", make("span", { class: "pages" })), forth);
  }
}

function turn(pager, pages) {
  showPage(Number(pager.dataset.page) + (pages || 0));
  if (pager.matches(".below")) byId("prompts-title").scrollIntoView();
}

// Show which of the fitting rows are on a page, and return the nearest page that exists.
function showPlace(page, fitting) {
  const last = Math.max(0, Math.ceil(fitting / ROWS) - 1);
  page = Math.min(Math.max(0, page), last);
  const from = page * ROWS;
  const part = last ? `, ${from + 1} to ${Math.min(fitting, from + ROWS)} on this page` : "";
  byId("filter-count").textContent = `${fitting} of ${data.rows.length} rows${part}`;
  for (const pager of document.querySelectorAll(".pager")) {
    pager.hidden = !last;
    pager.dataset.page = page;
    const [back, forth] = pager.querySelectorAll("button");
    [back.disabled, forth.disabled] = [page === 0, page === last];
    pager.querySelector("input").value = page + 1;
    pager.querySelector(".pages").textContent = `of ${last + 1}`;
  }
  return page;
}
