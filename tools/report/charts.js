/* The other plots: error over layers, margins of choices, the histogram and quantiles of a tap. */
const sign = (width, height, mark, text) =>
  html("span", {}, svg("svg", { width, height, "aria-hidden": "true" }, mark), " " + text);
const legendLine = (cls, text) => sign(26, 8, svg("path", { class: `line ${cls}`, d: "M0 4H26" }), text);

function decades(values) {
  const good = values.filter(v => v > 0 && v < FAR);
  if (!good.length) return [1e-6, 1];
  const lo = Math.floor(Math.log10(Math.min(...good)) - 0.05), hi = Math.ceil(Math.log10(Math.max(...good)) + 0.05);
  return [10 ** lo, 10 ** Math.max(hi, lo + 1)];
}

function growthPlot(host, growth, go) {
  const points = growth.points, known = v => v !== null;
  let chosen = null;
  host.append(html("div", { class: "legend" },
    legendLine("ours", "measured"), legendLine("floor", "noise floor"), legendLine("budget", growth.limit)));
  const over = points.filter(p => known(p.measured) && known(p.budget) && p.measured > p.budget).map(p => p.layer);
  const self = plot(host, `Relative error of the stream over ${points.length} layers, logarithmic. ` +
    (over.length ? `Above the ${growth.limit} from layer ${over[0]} on, in ${over.length} layers.` : `Nowhere above the ${growth.limit}.`),
    "Relative L2 of the stream that leaves each layer. Noise floor: the reference against itself in other orders of " +
    "summation. Values of 0 stand at the lower edge.",
    width => {
      const height = 300, box = { left: 46, right: width - 12, top: 24, bottom: height - 40 };
      const root = svg("svg", { height });
      const [lo, hi] = decades(points.flatMap(p => [p.measured, p.floor, p.budget]).filter(known));
      const x = linear(points[0].layer, Math.max(points[0].layer + 1, points.at(-1).layer), box.left + 6, box.right - 6);
      const y = logarithmic(lo, hi, box.bottom, box.top);
      axes(root, box, x, y, { titleX: "layer", titleY: "relative L2", formatY: power,
        ticksX: x.ticks(Math.min(points.length, Math.floor(width / 60))).filter(Number.isInteger) });
      if (chosen !== null)
        root.append(svg("rect", { class: "lane", x: x(chosen) - 8, y: box.top, width: 16, height: box.bottom - box.top }));
      for (const [key, cls] of [["floor", "floor"], ["budget", "budget"], ["measured", "ours"]]) {
        let d = "", pen = "M";
        for (const p of points) {
          if (!known(p[key])) { pen = "M"; continue; }
          d += `${pen}${x(p.layer).toFixed(1)} ${y(p[key]).toFixed(1)}`;
          pen = "L";
        }
        root.append(svg("path", { class: `line ${cls}`, d }));
      }
      const dots = points.filter(p => known(p.measured)).map(p => ({
        x: x(p.layer), y: y(p.measured), tap: `layers/${String(p.layer).padStart(2, "0")}/${p.tap}`,
        over: known(p.budget) && p.measured > p.budget,
        text: `layer ${p.layer}: measured ${show(p.measured)}\nfloor ${show(p.floor)}, ${growth.limit} ${show(p.budget)}`,
      }));
      for (const p of dots) root.append(svg("circle", { class: p.over ? "dot over" : "dot", cx: p.x, cy: p.y, r: p.over ? 4.5 : 3.5 }));
      hover(root, dots, go);
      return root;
    });
  return { select(layer) { chosen = layer; self.draw(); } };
}

/* Every row that chose otherwise, by the reference's margin: a wrong choice is one that a margin above noise
   forbids. */
function marginPlot(host, flips, go) {
  /* Lanes from the first layer down, then the draft head. */
  const numbered = lane => /^\d/.test(lane);
  const lanes = [...new Set(flips.map(f => f[1]))]
    .sort((a, b) => numbered(b) - numbered(a) || a.localeCompare(b, "en", { numeric: true }));
  const wrong = flips.filter(f => f[4] === "wrong").length;
  host.append(html("div", { class: "legend" },
    sign(13, 13, svg("circle", { class: "tie", cx: 6.5, cy: 6.5, r: 4 }), "tie"),
    sign(13, 13, svg("path", { class: "cross", d: "M2 2L11 11M2 11L11 2" }), "wrong")));
  plot(host, `Margins of ${flips.length} differing choices by layer; ${wrong} are wrong.`,
    "The reference's margin between the last chosen and the next. Margin 0, an exact tie, stands at the left edge.", width => {
      const n = lanes.length, height = Math.min(360, 110 + 20 * n), step = Math.ceil(n / 14);
      const box = { left: 46, right: width - 14, top: 24, bottom: height - 40 }, root = svg("svg", { height });
      const [a, b] = decades(flips.map(f => f[3]).filter(v => v !== null));
      const x = logarithmic(a, b, box.left + 8, box.right - 6), y = linear(-0.5, n - 0.5, box.top, box.bottom);
      axes(root, box, x, y, { titleX: "margin", titleY: "layer", formatX: power, formatY: i => lanes[i].slice(0, 8),
        ticksY: lanes.map((_, i) => i).filter(i => i % step === 0) });
      /* Points of a lane are spread a little, always the same way, so that equal margins do not hide each other. */
      const spread = Math.min(1.2, 0.08 * (box.bottom - box.top) / n);
      const points = flips.map(([tap, lane, label, margin, kind], i) => ({
        x: x(margin === null ? a : margin), y: y(lanes.indexOf(lane)) + ((i * 7) % 9 - 4) * spread, tap, kind,
        text: `${tap}, token ${label}\nmargin ${show(margin)}: ${kind}`,
      }));
      for (const p of [...points].sort((u, v) => (u.kind === "wrong") - (v.kind === "wrong")))
        root.append(p.kind === "wrong"
          ? svg("path", { class: "cross", d: `M${p.x - 4} ${p.y - 4}l8 8m-8 0l8 -8` })
          : svg("circle", { class: "tie", cx: p.x, cy: p.y, r: 3.5 }));
      hover(root, points, go);
      return root;
    });
}

function histogramPlot(host, t) {
  const n = t.hist.length, step = 2 * t.span / n, from = i => i * step - t.span, centre = i => from(i + 0.5);
  const floored = t.floor !== null, equal = show(100 * t.zero / t.n);
  host.append(html("div", { class: "legend" },
    legendLine(floored ? "budget" : "floor", floored ? "the measured floor, as a Gaussian" : "a Gaussian of the same spread")));
  plot(host, `Histogram of ${t.n} errors of ${t.tap}: relative L2 ${show(t.rel)}, ${equal} percent are zero.`,
    `Error (ours less reference) in units of ${floored ? "the floor's" : "its own"} sigma, ${show(t.sigma)}. The outermost bars ` +
    `hold all beyond. ${equal} % of ${t.n.toLocaleString("en").replace(/,/g, "\u202f")} values are bit-equal.`, width => {
      const height = 280, box = { left: 46, right: width - 12, top: 24, bottom: height - 40 }, root = svg("svg", { height });
      const gauss = i => t.n * step / Math.sqrt(2 * Math.PI) * Math.exp(-(centre(i) ** 2) / 2);
      const top = 10 ** Math.ceil(Math.log10(Math.max(2, ...t.hist, gauss(n >> 1))) + 0.02);
      const x = linear(-t.span, t.span, box.left, box.right), y = logarithmic(0.5, top, box.bottom, box.top);
      axes(root, box, x, y, { titleX: "error / sigma", titleY: "values", formatY: power, ticksX: [-8, -4, 0, 4, 8] });
      const wide = Math.max(0.5, x(step) - x(0) - 0.6);
      t.hist.forEach((v, i) => {
        if (v) root.append(svg("rect", { class: "hist", x: x(from(i)), y: y(v), width: wide, height: box.bottom - y(v) }));
      });
      const points = t.hist.map((v, i) => ({
        x: x(centre(i)), y: y(v), text: `error ${show(from(i))} to ${show(from(i + 1))} sigma: ${v}`,
      }));
      let d = "";
      for (let i = 0; i < n; i++) if (gauss(i) > 0.5) d += `${d ? "L" : "M"}${x(centre(i)).toFixed(1)} ${y(gauss(i)).toFixed(1)}`;
      root.append(svg("path", { class: `line ${floored ? "budget" : "floor"}`, d }));
      hover(root, points);
      return root;
    });
}

function quantilePlot(host, t) {
  const lo = Math.min(...t.q.map(p => Math.min(...p))), hi = Math.max(...t.q.map(p => Math.max(...p)));
  const off = Math.max(...t.q.map(([a, b]) => Math.abs(b - a)));
  plot(host, `Quantiles of ours against the reference of ${t.tap}: farthest from the diagonal ${show(off)}, ` +
    `values from ${show(lo)} to ${show(hi)}.`,
    "Quantiles, dense in the tails. On the line both sides are distributed alike; another slope is a gain, bent ends are tails.", width => {
      const height = Math.min(320, width), right = Math.min(width - 12, 58 + height * 1.25);
      const box = { left: 58, right, top: 24, bottom: height - 40 };
      const root = svg("svg", { height }), pad = (hi - lo || 1) * 0.04;
      const x = linear(lo - pad, hi + pad, box.left, box.right), y = linear(lo - pad, hi + pad, box.bottom, box.top);
      axes(root, box, x, y, { titleX: "reference", titleY: "ours", ticksX: x.ticks(4) });
      root.append(svg("path", { class: "line floor", d: `M${x(lo)} ${y(lo)}L${x(hi)} ${y(hi)}` }));
      const points = t.q.map(([a, b]) => ({ x: x(a), y: y(b), text: `reference ${show(a)}, ours ${show(b)}` }));
      for (const p of points) root.append(svg("circle", { class: "dot", cx: p.x, cy: p.y, r: 3 }));
      hover(root, points);
      return root;
    });
}

function spreadPlots(host, t) {
  host.replaceChildren();
  const notes = (t.step > 1 ? `One row in ${t.step} is taken. ` : "") +
    (t.lost ? `${t.lost} values are no finite numbers on one side and left out.` : "");
  const left = html("div", {}, html("h3", {}, "Error")), right = html("div", {}, html("h3", {}, "Quantiles"));
  host.append(left, right);
  if (t.empty) {
    left.append(html("p", { class: "quiet" }, `No common row holds finite values. ${notes}`));
    return;
  }
  if (t.exact) left.append(html("p", { class: "quiet" }, `Bit-equal: all ${t.n} values.`));
  else histogramPlot(left, t);
  quantilePlot(right, t);
  if (notes) left.append(html("p", { class: "bad" }, notes));
}
