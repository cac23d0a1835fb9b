/* Curves from data: lines and points with intervals, lines of limits. Every value is told by the tip, to the
   pointer and to the keyboard. */
const MARKS = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-3.6 -3.6h7.2v7.2h-7.2z", "M0 -4.8L4.6 3.6H-4.6z", "M0 -5.2L5.2 0L0 5.2L-5.2 0z",
  "M-4.6 -3.6H4.6L0 4.8z", "M-4.6 -1.5h3.1v-3.1h3v3.1h3.1v3h-3.1v3.1h-3v-3.1h-3.1z"];
const spot = (style, x, y) =>
  svg("path", { class: `spot ${style}`, d: MARKS[Number(style.slice(1)) % MARKS.length], transform: `translate(${x} ${y})` });

/* Lengths are powers of two and their neighbours. */
function powersOfTwo(lo, hi, most) {
  const first = Math.ceil(Math.log2(lo) - 1e-9), last = Math.floor(Math.log2(hi) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most)), list = [];
  for (let e = first; e <= last; e += step) list.push(2 ** e);
  return list;
}

function evenLengths(lo, hi, most) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, hi - lo) / most))), list = [];
  for (let v = lo; v <= hi; v += step) list.push(v);
  return list;
}

/* 1, 2, 5 and their tens where few fit. */
function roundNumbers(lo, hi) {
  const list = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.log10(hi); e++)
    for (const m of [1, 2, 5]) if (m * 10 ** e >= lo && m * 10 ** e <= hi) list.push(Number((m * 10 ** e).toPrecision(6)));
  return list.length <= 8 && list.length > 1 ? list : null;
}

function short(v) {
  for (const [size, word] of [[2 ** 20, "M"], [2 ** 10, "K"]]) if (v >= size) return show(v / size) + word;
  return show(v);
}

function scaleOf(axis, values, r0, r1) {
  const good = values.filter(v => v !== null && Math.abs(v) < FAR);
  let lo = Math.min(...good), hi = Math.max(...good);
  if (axis.scale === "log" && hi > 0) {
    lo = Math.min(...good.filter(v => v > 0));
    const pad = hi > lo ? (axis.unit === "tokens" ? 1 : 1.12) : 2, scale = logarithmic(lo / pad, hi * pad, r0, r1), tens = scale.ticks;
    scale.ticks = () => roundNumbers(lo / pad, hi * pad) || tens();
    return scale;
  }
  if (axis.zero) { lo = Math.min(0, lo); hi = Math.max(0, hi); }
  if (lo === hi) { lo -= axis.zero ? 0 : 1; hi += 1; }
  const pad = axis.zero ? (hi - lo) * 0.06 : 0;
  return linear(lo < 0 ? lo - pad : lo, hi + pad, r0, r1);
}

const placesOf = (series, x, y, div) => series.points.map(([px, py, low, high, text]) => ({
  x: x(px), y: y(py / div), low: low === null ? null : y(low / div), high: high === null ? null : y(high / div), text, order: px,
}));

function drawSeries(root, series, points) {
  if (series.mark !== "points" && points.length > 1) {
    const d = points.map((p, i) => `${i ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
    root.append(svg("path", { class: `line ${series.style}`, d, "data-series": series.name }));
  }
  const marked = series.mark === "points" || series.mark === "line" && points.length <= 60 || points.length === 1;
  for (const p of points) {
    if (p.low !== null && p.high !== null && Math.abs(p.low - p.high) > 0.5)
      root.append(svg("path", { class: `whisker ${series.style}`, d: `M${p.x} ${p.low}V${p.high}` }));
    if (marked)
      root.append(spot(series.style, p.x.toFixed(1), p.y.toFixed(1)));
  }
}

function legendSign(series) {
  const line = series.mark !== "points" && svg("path", { class: `line ${series.style}`, d: "M0 6H26" });
  const mark = series.mark !== "limit" && spot(series.style, 13, 6);
  return html("span", {}, svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, ...[line, mark].filter(Boolean)), " " + series.name);
}

function curvePlot(host, spec) {
  host.append(html("h4", {}, spec.title), html("div", { class: "legend" }, ...spec.series.map(legendSign)));
  const all = spec.series.flatMap(s => s.points), div = spec.y.div;
  const told = spec.series.map(s => `${s.name}: ${s.points.length === 1 ? "one value" : `${s.points.length} values`}, ` +
    `last ${s.points.at(-1)[4].replace(/\n/g, ", ")}`).join("; ");
  plot(host, `${spec.title}. ${told}.`, spec.caption, width => {
    const height = 280, box = { left: 58, right: width - 14, top: 24, bottom: height - 40 }, root = svg("svg", { height });
    const x = scaleOf(spec.x, all.map(p => p[0] / spec.x.div), box.left + 8, box.right - 8);
    const y = scaleOf(spec.y, all.flatMap(p => [p[1], p[2], p[3]]).filter(v => v !== null).map(v => v / div), box.bottom, box.top);
    const lengths = spec.x.unit === "tokens", options = { titleX: spec.x.title, titleY: spec.y.title };
    if (lengths && spec.x.scale === "log") {
      const inside = all.map(p => p[0]).filter(v => v > 0);
      options.ticksX = powersOfTwo(Math.min(...inside), Math.max(...inside), Math.max(2, Math.floor(width / 70)));
    }
    const few = Math.max(2, Math.floor(width / 90));
    if (lengths && spec.x.scale !== "log") options.ticksX = evenLengths(0, Math.max(...all.map(p => p[0])), few);
    if (!options.ticksX || !options.ticksX.length) options.ticksX = x.ticks(few);
    if (lengths) options.formatX = short;
    axes(root, box, x, y, options);
    const points = spec.series.flatMap(s => {
      const shown = placesOf(s, v => x(v / spec.x.div), y, div);
      drawSeries(root, s, shown);
      return shown;
    });
    hover(root, points.sort((a, b) => a.order - b.order));
    return root;
  });
}
