/* Tables sort by their heads (buttons, so the keyboard does too) and filter by text; both are told. */
function tableTools(host) {
  const table = host.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  const scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption.textContent });
  table.replaceWith(scroll);
  scroll.append(table);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = html("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(table, rows, column, head.classList.contains("n")));
  });
  if (rows.length < 6 || !host.dataset.name) return;
  const name = host.dataset.name, id = `filter-${document.querySelectorAll(".tools").length}`;
  const input = html("input", { type: "search", id, placeholder: "text in any column" });
  const told = html("span", { class: "dim", "aria-live": "polite" });
  const tools = html("div", { class: "tools" }, html("label", { for: id }, `Filter ${name}`), input);
  const text = rows.map(row => row.textContent.toLowerCase());
  let only = null;
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    rows.forEach((row, i) => {
      const wanted = !only || only.getAttribute("aria-pressed") === "false" || row.classList.contains("failed");
      row.hidden = !(wanted && words.every(w => text[i].includes(w)));
      n += !row.hidden;
    });
    told.textContent = `${n} of ${rows.length}`;
  };
  if (host.dataset.only && rows.some(row => row.classList.contains("failed"))) {
    only = html("button", { type: "button", "aria-pressed": "false" }, "failed only");
    only.addEventListener("click", () => {
      only.setAttribute("aria-pressed", String(only.getAttribute("aria-pressed") === "false"));
      apply();
    });
    tools.append(only);
  }
  tools.append(told);
  input.addEventListener("input", apply);
  host.clearFilter = () => {
    input.value = "";
    if (only) only.setAttribute("aria-pressed", "false");
    apply();
  };
  host.prepend(tools);
  apply();
}

/* Numbers: the largest first at the first click; words: ascending. Missing values stay last either way. */
function sortBy(table, rows, column, numeric) {
  const head = table.tHead.rows[0].cells[column], was = head.getAttribute("aria-sort");
  const down = was ? was === "ascending" : numeric;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const keys = new Map(rows.map(row => {
    const cell = row.cells[column], v = cell.dataset.v;
    if (!numeric) return [row, cell.textContent.trim() || null];
    return [row, v ? Number(v) : null];
  }));
  const order = [...rows].sort((p, q) => {
    const a = keys.get(p), b = keys.get(q);
    if (a === null || b === null) return (a === null) - (b === null);
    const way = numeric ? (a < b ? -1 : a > b ? 1 : 0) : a.localeCompare(b, "en", { numeric: true });
    return down ? -way : way;
  });
  table.tBodies[0].append(...order);
}
