/* Small plots as SVG: scales, ticks, a frame that follows its width, a tip, a nearest-point search. */
const NS = "http://www.w3.org/2000/svg";

function make(ns, tag, attributes, children) {
  const node = ns ? document.createElementNS(ns, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const svg = (tag, attributes, ...children) => make(NS, tag, attributes, children);
const html = (tag, attributes, ...children) => make(null, tag, attributes, children);

/* Three significant digits, as the tables have them; the far ends of the range stand for infinities. */
function show(v) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (Math.abs(v) >= 1e307) return v > 0 ? "∞" : "−∞";
  if (v === 0) return "0";
  const size = Math.abs(v);
  const text = size >= 1e-3 && size < 1e5 ? String(Number(v.toPrecision(3))) : v.toExponential(2).replace("e+", "e");
  return text.replace(/-/g, "−");
}

function linear(d0, d1, r0, r1) {
  const k = d1 === d0 ? 0 : (r1 - r0) / (d1 - d0);
  const scale = v => r0 + (v - d0) * k;
  scale.ticks = (n = 6) => {
    const raw = (d1 - d0) / n, power = 10 ** Math.floor(Math.log10(raw || 1));
    const step = power * [1, 2, 5, 10].find(m => m * power >= raw * 0.999);
    const list = [];
    for (let i = Math.ceil(d0 / step - 1e-9); i * step <= d1 + 1e-9 * step; i++) list.push(Number((i * step).toPrecision(12)));
    return list;
  };
  return scale;
}

/* Values at or below d0, zero among them, are drawn at the edge. */
function logarithmic(d0, d1, r0, r1) {
  const inner = linear(Math.log10(d0), Math.log10(d1), r0, r1);
  const scale = v => inner(Math.log10(Math.min(Math.max(v, d0), d1)));
  scale.ticks = () => {
    const lo = Math.ceil(Math.log10(d0) - 1e-9), hi = Math.floor(Math.log10(d1) + 1e-9);
    const step = Math.max(1, Math.ceil((hi - lo) / 6)), list = [];
    for (let e = lo; e <= hi; e += step) list.push(10 ** e);
    return list;
  };
  return scale;
}

function power(v) {
  const e = Math.round(Math.log10(v));
  if (e >= -2 && e <= 3) return String(Number(v.toPrecision(3)));
  return "10" + String(e).replace(/[-0-9]/g, c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
}

const tipNode = document.getElementById("tip");
function tip(event, text) {
  tipNode.hidden = !text;
  if (!text) return;
  tipNode.textContent = text;
  const box = tipNode.getBoundingClientRect();
  const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
  const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 16;
  tipNode.style.left = Math.max(4, x) + "px";
  tipNode.style.top = Math.max(4, y) + "px";
}

/* All plots that must be drawn again when the width or the colours change. */
const drawn = new Set();
function plot(host, summary, caption, draw) {
  const area = html("div", { class: "plot" });
  const figure = html("figure", {}, area, html("figcaption", {}, caption));
  host.append(figure);
  let width = 0;
  const self = {
    area,
    draw() {
      width = area.clientWidth;
      if (width > 0) area.replaceChildren(...[draw(width)].flat());
      const image = area.querySelector("svg"), words = typeof summary === "function" ? summary() : summary;
      if (image) {
        image.setAttribute("role", "img");
        image.setAttribute("aria-label", words);
        if (image.nearest) image.prepend(svg("title", {}, words), svg("desc", {}, figure.lastChild.textContent));
      }
    },
    caption(text) { figure.lastChild.textContent = text; },
  };
  const tell = (event, what) => { const image = area.querySelector("svg.points"); if (image) image[what](event); };
  area.addEventListener("pointermove", e => tell(e, "nearest"));
  area.addEventListener("pointerleave", e => tip(e, ""));
  area.addEventListener("click", e => tell(e, "follow"));
  new ResizeObserver(() => { if (area.clientWidth !== width) self.draw(); }).observe(area);
  drawn.add(self);
  self.draw();
  return self;
}

/* Axes of a plot: box = {left, right, top, bottom}; titles are put inside, where they cost no width. */
function axes(root, box, x, y, options) {
  const marksX = options.ticksX || x.ticks(Math.max(2, Math.floor((box.right - box.left) / 80)));
  for (const v of options.ticksY || y.ticks(5)) {
    root.append(svg("path", { class: "grid", d: `M${box.left} ${y(v)}H${box.right}` }),
      svg("text", { x: box.left - 7, y: y(v) + 4, "text-anchor": "end" }, (options.formatY || show)(v)));
  }
  for (const v of marksX) {
    root.append(svg("path", { class: "axis", d: `M${x(v)} ${box.bottom}v4` }),
      svg("text", { x: x(v), y: box.bottom + 17, "text-anchor": "middle" }, (options.formatX || show)(v)));
  }
  root.append(svg("path", { class: "axis", d: `M${box.left} ${box.bottom}H${box.right}` }),
    svg("text", { x: box.right, y: box.bottom + 34, "text-anchor": "end" }, options.titleX),
    svg("text", { x: box.left - 40, y: box.top - 10, "text-anchor": "start" }, options.titleY));
}

/* Tells of the nearest of points [{x, y, text, tap}] under the pointer, or of the next by the arrow keys; a
   click goes to its tap. The frame (plot) listens, so that the SVG's own title does not stand over the tip. */
function hover(root, points, go) {
  const place = () => root.getBoundingClientRect();
  const nearest = event => {
    const box = place(), px = event.clientX - box.left, py = event.clientY - box.top;
    let best = null, least = 900;
    for (const p of points) {
      const d = (p.x - px) ** 2 + (p.y - py) ** 2;
      if (d < least) [best, least] = [p, d];
    }
    return best;
  };
  root.classList.add("points");
  /* Points that lie on each other are told together. */
  const words = p => points.filter(q => q === p || (q.x - p.x) ** 2 + (q.y - p.y) ** 2 < 50).slice(0, 4).map(q => q.text).join("\n");
  root.nearest = event => { const p = nearest(event); tip(event, p && words(p)); };
  root.follow = event => { const p = nearest(event); if (go && p && p.tap) go(p.tap); };
  stepByKeys(root, points, place);
}

function stepByKeys(root, points, place) {
  const ring = svg("circle", { class: "cursor", r: 7, visibility: "hidden" });
  let at = -1;
  root.append(ring);
  root.setAttribute("tabindex", "0");
  root.addEventListener("keydown", e => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: points.length - 1 }[e.key];
    if (to === undefined || !points.length) return;
    e.preventDefault();
    at = Math.min(points.length - 1, Math.max(0, to));
    const p = points[at], box = place();
    for (const [name, value] of [["cx", p.x], ["cy", p.y], ["visibility", "visible"]]) ring.setAttribute(name, value);
    tip({ clientX: box.left + p.x, clientY: box.top + p.y }, p.text);
  });
  root.addEventListener("blur", e => { ring.setAttribute("visibility", "hidden"); tip(e, ""); });
}
