/* Wiring: data, theme, which comparison is shown, links by tap name. */
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, shownPlots = [];

function settleColours() {
  /* The canvas needs colours as values: light-dark() is resolved by the elements that use it. */
  const style = getComputedStyle(document.body);
  root.style.setProperty("--ink-now", style.color);
  root.style.setProperty("--ground-now", style.backgroundColor);
  for (const p of drawn) p.draw();
}

function themeButton() {
  const button = document.getElementById("theme"), order = ["", "light", "dark"];
  const set = theme => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    button.textContent = { "": "◐ auto", light: "○ light", dark: "● dark" }[theme];
    button.setAttribute("aria-label", `colours: ${theme || "as the system"}`);
    settleColours();
  };
  let theme = "";
  /* A page opened from a file may have no storage. */
  try { theme = localStorage.getItem("dsf-report-theme") || ""; } catch (e) { theme = ""; }
  set(order.includes(theme) ? theme : "");
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
    set(next);
    try { localStorage.setItem("dsf-report-theme", next); } catch (e) { return; }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", settleColours);
  matchMedia("print").addEventListener("change", settleColours);
}

const go = tap => {
  history.pushState(null, "", `#tap=${encodeURIComponent(tap)}`);
  select(tap, false);
};

function comparison(i) {
  const box = document.getElementById(`c${i}`), c = data.comparisons[i], made = { box };
  const host = name => box.querySelector(`.${name}[data-c]`);
  if (c.heat && host("heat")) made.heat = new HeatMap(host("heat"), c.heat, go);
  if (c.growth && host("growth")) made.growth = growthPlot(host("growth"), c.growth, go);
  if (c.flips.length && host("margins")) marginPlot(host("margins"), c.flips, go);
  return made;
}

function showComparison(i) {
  document.querySelectorAll(".comparison").forEach((box, j) => { box.hidden = j !== i; });
  if (!shownPlots[i]) shownPlots[i] = comparison(i);
  document.getElementById("which").value = i;
}

function showTap(i) {
  document.getElementById("values-note").hidden = true;
  document.getElementById("tap").value = i;
  spreadPlots(document.getElementById("spread"), data.dumps[i]);
}

/* Selects a tap everywhere: its row, its cell in the heat map, its layer, its values. */
function select(path, scroll) {
  document.querySelectorAll("tr.chosen").forEach(row => row.classList.remove("chosen"));
  const find = box => [...box.querySelectorAll("tr[data-tap]")].find(row => row.dataset.tap === path);
  const boxes = [...document.querySelectorAll(".comparison")];
  const at = [boxes.findIndex(box => !box.hidden && find(box)), boxes.findIndex(find)].find(i => i >= 0);
  if (at !== undefined) {
    showComparison(at);
    const row = find(boxes[at]), host = row.closest(".table");
    if (row.hidden) host.clearFilter();
    row.classList.add("chosen");
    const frame = row.closest(".scroll");
    frame.scrollTop = row.offsetTop - frame.clientHeight / 2;
    const made = shownPlots[at], layer = /^layers\/(\d+)\//.exec(path);
    if (made.heat) made.heat.select(path);
    if (made.growth) made.growth.select(layer ? Number(layer[1]) : null);
    if (scroll) frame.scrollIntoView({ block: "center", behavior: "instant" });
  }
  const values = data.dumps.findIndex(t => t.tap === path), note = document.getElementById("values-note");
  if (note) {
    note.hidden = values >= 0;
    note.textContent = `The values of ${path} are not in this page: a choice has none, others are asked for with --tap.`;
  }
  if (values >= 0) {
    showTap(values);
    if (scroll && at === undefined) document.getElementById("values").scrollIntoView();
  }
}

function followHash() {
  const found = /^#tap=(.*)$/.exec(location.hash);
  if (!found) return;
  let path = found[1];
  try { path = decodeURIComponent(path); } catch (e) { path = found[1]; }
  select(path, true);
}

themeButton();
document.querySelectorAll(".table").forEach(tableTools);
document.querySelectorAll(".curve[data-n]").forEach(host => curvePlot(host, data.curves[host.dataset.n]));
if (data.comparisons.length) {
  showComparison(0);
  document.getElementById("which").addEventListener("change", e => showComparison(Number(e.target.value)));
}
if (data.dumps.length) {
  showTap(0);
  document.getElementById("tap").addEventListener("change", e => showTap(Number(e.target.value)));
}
addEventListener("hashchange", followHash);
followHash();
root.dataset.ready = "1";
