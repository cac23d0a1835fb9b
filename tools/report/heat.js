/* The heat map: layers downwards, tokens to the right, a colour for the ratio of a row to its limit, marks for
   choices that differ. Cells are drawn on a canvas; labels, the chosen cell and what the pointer and the
   keyboard do are an SVG over it. */
const FAR = 1e307; /* infinities as the page has them */

/* Base64 of floats, lanes x columns. */
function decode(text, lanes) {
  const cells = new Float32Array(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
  return { cells, columns: lanes ? cells.length / lanes : 0 };
}

/* The map of one kind of tap, or of the worst of several: {axis, unit, cells, columns, by, flips}. Among
   several, what is reported without a judgement does not count: it has no limit to be over. */
function worstOf(heat, kinds) {
  const judged = kinds.some(kind => kind.reported.length < heat.lanes.length);
  const columns = kinds[0].columns, n = kinds[0].cells.length;
  const cells = new Float32Array(n).fill(NaN), by = new Int16Array(n).fill(-1), flips = new Map();
  for (const kind of kinds) {
    const left = new Set(kinds.length > 1 && judged ? kind.reported : []);
    kind.cells.forEach((v, i) => {
      if (!Number.isNaN(v) && !(cells[i] >= v) && !left.has(Math.floor(i / columns))) [cells[i], by[i]] = [v, kind.index];
    });
    for (const [lane, column, wrong] of kind.flips) {
      const at = lane * columns + column;
      if (wrong || !flips.has(at)) flips.set(at, { wrong, kind: kind.index });
    }
  }
  return { axis: heat.axes[kinds[0].axis], unit: kinds[0].axis, cells, columns, by, flips };
}

/* The worst of cells from..to-1; NaN when none is told. */
function worstIn(cells, from, to) {
  let worst = NaN;
  for (let i = from; i < to; i++) if (!Number.isNaN(cells[i]) && !(worst >= cells[i])) worst = cells[i];
  return worst;
}

class HeatMap {
  constructor(host, heat, go) {
    this.heat = heat;
    this.go = go;
    this.lanes = heat.lanes.length;
    this.kinds = heat.kinds.map((kind, index) => ({ ...kind, index, ...decode(kind.cells, this.lanes) }));
    this.tokens = this.kinds.filter(kind => kind.axis === "token");
    this.chosenLane = -1;
    this.choice = this.chooser();
    this.legend = html("div", { class: "legend" });
    this.said = html("div", { class: "said", "aria-live": "polite" });
    host.append(html("div", { class: "choice" }, html("label", {}, "Show"), this.choice), this.legend);
    this.pick();
    this.plot = plot(host, () => this.summary(), this.caption(), width => this.draw(width));
    host.append(this.said);
  }

  chooser() {
    const choice = html("select", { "aria-label": "taps shown in the heat map" });
    if (this.tokens.length) choice.append(html("option", { value: "-1" }, "worst of all taps"));
    for (const kind of this.kinds) {
      const entry = kind.axis === "entry" ? " (cache entries)" : "", loose = kind.reported.length ? " (not judged)" : "";
      choice.append(html("option", { value: kind.index }, kind.kind + entry + loose));
    }
    choice.addEventListener("change", () => {
      this.pick();
      this.plot.caption(this.caption());
      this.plot.draw();
    });
    return choice;
  }

  pick() {
    const i = Number(this.choice.value);
    this.map = worstOf(this.heat, i < 0 ? this.tokens : [this.kinds[i]]);
    this.ties = [...this.map.flips.values()].filter(flip => !flip.wrong).length;
    this.cursor = null;
  }

  /* ---- words ---- */

  laneName(i) {
    const names = this.heat.lanes[i];
    return names.length > 1 ? `${names[0]}–${names.at(-1)}` : names[0];
  }

  /* The tap behind a cell: of a wrong choice, else of the worst ratio, else of a choice. */
  tapOf(lane, column) {
    const at = lane * this.map.columns + column, flip = this.map.flips.get(at), by = this.map.by[at];
    const kind = this.kinds[(flip && flip.wrong) || by < 0 ? (flip ? flip.kind : -1) : by];
    return kind && kind.paths[lane];
  }

  tell(lane, column) {
    const at = lane * this.map.columns + column, v = this.map.cells[at], flip = this.map.flips.get(at);
    const { first, last } = this.map.axis, name = this.laneName(lane), tap = this.tapOf(lane, column);
    const span = first[column] === last[column] ? ` ${first[column]}` : `s ${first[column]}–${last[column]}`;
    let words = flip ? "" : "nothing told";
    if (!Number.isNaN(v)) words = v > FAR ? "beyond any limit" : v === 0 ? "bit-equal" : `${show(v)} of the limit`;
    if (flip) words += `${words ? "; " : ""}choice differs: ${flip.wrong ? "wrong" : "tie"} (${this.kinds[flip.kind].kind})`;
    return `${/^\d/.test(name) ? "layer " : ""}${name}, ${this.map.unit}${span}: ${words}${tap ? `\n${tap}` : ""}`;
  }

  caption() {
    const { per, labels } = this.map.axis, unit = this.map.unit === "token" ? "tokens" : "entries";
    const columns = per > 1 ? ` Each column is the worst of ${per} ${unit} (${labels} in all).` : "";
    const lines = this.heat.lanes_per > 1 ? ` Each line is the worst of ${this.heat.lanes_per} layers.` : "";
    return `Colour: relative error of a row over its limit.${columns}${lines} ` +
      "Point or use the arrow keys for values; Enter or a click goes to the tap.";
  }

  summary() {
    const { cells, columns, unit } = this.map, worst = cells.indexOf(worstIn(cells, 0, cells.length));
    const over = cells.filter(v => v > 1).length;
    return `Heat map of ${this.lanes} layers by ${columns} columns of ${unit} rows. ${over} cells beyond the limit.` +
      (worst < 0 ? "" : ` Worst: ${this.tell(Math.floor(worst / columns), worst % columns)}.`);
  }

  explain() {
    const colour = ramp(), left = 20, decade = 30, bar = svg("svg", { width: 190, height: 30, "aria-hidden": "true" });
    for (let i = 0; i < decade * (LOWEST + HIGHEST); i++)
      bar.append(svg("rect", { x: left + i, y: 0, width: 1.5, height: 12, fill: colour(10 ** (i / decade - LOWEST)) }));
    for (const [v, text] of [[-LOWEST, "10⁻³"], [0, "limit"], [HIGHEST, "100×"]]) {
      const x = left + (v + LOWEST) * decade;
      bar.append(svg("path", { stroke: "currentColor", d: `M${x + 0.5} 12v3` }),
        svg("text", { x, y: 27, "text-anchor": "middle", fill: "currentColor", "font-size": 11 }, text));
    }
    const drawn = { width: 13, height: 13, fill: "none", stroke: "currentColor", "aria-hidden": "true" };
    const icon = (...inside) => svg("svg", drawn, ...inside);
    const box = (fill, dash) => icon(svg("rect", { x: 0.5, y: 0.5, width: 12, height: 12, fill, "stroke-dasharray": dash }));
    const item = (mark, text) => html("span", {}, mark, " " + text);
    const ties = this.crowded ? `ties: ${this.ties} cells, too many to draw` : "choice differs, a tie";
    this.legend.replaceChildren(html("span", {}, bar), item(box(colour(0)), "bit-equal"), item(box("none", "2 2"), "not compared"),
      item(icon(svg("circle", { cx: 6.5, cy: 6.5, r: 3.5 })), ties),
      item(icon(svg("path", { d: "M2 2L11 11M2 11L11 2", "stroke-width": 2 })), "wrong choice"));
  }

  /* ---- drawing ---- */

  draw(width) {
    const tall = Math.max(5, Math.min(22, Math.floor(520 / this.lanes))), left = width < 500 ? 44 : 56;
    this.box = { left, top: 6, width: width - left - 6, height: tall * this.lanes, tall };
    this.crowded = this.ties > width / 4;
    this.explain();
    const { top, height } = this.box, k = devicePixelRatio || 1;
    const canvas = html("canvas", { width: Math.round(width * k), height: Math.round((height + top) * k), "aria-hidden": "true" });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height + top}px`;
    this.root = svg("svg", { height: height + top + 40, tabindex: "0" });
    this.root.style.position = "relative";
    if (this.map.columns) {
      const context = canvas.getContext("2d");
      context.scale(k, k);
      this.drawCells(context);
      this.drawFlips(context);
    }
    this.drawLabels();
    this.drawChosen();
    this.listen();
    return [canvas, this.root];
  }

  /* Narrower than its columns, the map shows the worst of those that share a pixel. */
  drawCells(context) {
    const { left, top, width, tall } = this.box, { cells, columns } = this.map, colour = ramp();
    const shown = Math.min(columns, Math.max(1, Math.floor(width))), wide = width / shown, gap = wide >= 5 && tall >= 5 ? 1 : 0;
    for (let lane = 0; lane < this.lanes; lane++)
      for (let i = 0; i < shown; i++) {
        const from = Math.floor(i * columns / shown), to = Math.max(from + 1, Math.floor((i + 1) * columns / shown));
        const v = worstIn(cells, lane * columns + from, lane * columns + to);
        if (Number.isNaN(v)) continue;
        context.fillStyle = colour(v);
        context.fillRect(left + i * wide, top + lane * tall, gap ? wide - gap : wide + 0.5, tall - gap);
      }
  }

  /* Ink on a halo of ground, so that a mark stands out on any colour. */
  drawFlips(context) {
    const { left, top, width, tall } = this.box, { columns, flips } = this.map, wide = width / columns;
    const r = Math.max(2, Math.min(5, 0.32 * Math.min(Math.max(wide, 7), tall)));
    const style = getComputedStyle(document.documentElement);
    for (const [at, flip] of flips) {
      if (this.crowded && !flip.wrong) continue;
      const x = left + (at % columns + 0.5) * wide, y = top + (Math.floor(at / columns) + 0.5) * tall;
      const shape = new Path2D(flip.wrong ? `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` : "");
      if (!flip.wrong) shape.arc(x, y, 0.7 * r, 0, 7);
      for (const [ink, thick] of [["--ground-now", flip.wrong ? 3.6 : 2.6], ["--ink-now", flip.wrong ? 1.6 : 1]]) {
        context.lineWidth = thick;
        context.strokeStyle = style.getPropertyValue(ink);
        context.stroke(shape);
      }
    }
  }

  drawLabels() {
    const { left, top, width, height, tall } = this.box, { columns, axis, unit } = this.map;
    const text = (x, y, anchor, words) => this.root.append(svg("text", { x, y, "text-anchor": anchor }, words));
    const each = Math.ceil(13 / tall);
    for (let i = 0; i < this.lanes; i += each) text(left - 6, top + (i + 0.5) * tall + 4, "end", this.laneName(i).slice(0, 8));
    const marks = Math.max(1, Math.min(columns - 1, Math.floor(width / 70)));
    for (let i = 0; i <= marks && columns; i++) {
      const column = Math.round((i / marks) * (columns - 1));
      if (i && !column) break;
      const anchor = column && column === columns - 1 ? "end" : "middle";
      text(left + (column + 0.5) * width / columns, top + height + 16, anchor, axis.first[column]);
    }
    text(left + width, top + height + 33, "end", unit);
  }

  drawChosen() {
    const { left, top, width, tall } = this.box, at = this.cursor;
    this.root.querySelectorAll(".cursor, .lane").forEach(node => node.remove());
    if (this.chosenLane >= 0)
      this.root.prepend(svg("rect", { class: "lane", x: 0, y: top + this.chosenLane * tall, width: left + width, height: tall }));
    if (!at) return;
    const wide = width / this.map.columns, x = left + at.column * wide - 1, y = top + at.lane * tall - 1;
    this.root.append(svg("rect", { class: "cursor", x, y, width: Math.max(wide, 3) + 1, height: tall + 1 }));
    this.said.textContent = this.tell(at.lane, at.column);
  }

  /* ---- pointer and keyboard ---- */

  cellAt(event) {
    const { left, top, width, height } = this.box, frame = this.root.getBoundingClientRect();
    const column = Math.floor((event.clientX - frame.left - left) / width * this.map.columns);
    const lane = Math.floor((event.clientY - frame.top - top) / height * this.lanes);
    return lane >= 0 && lane < this.lanes && column >= 0 && column < this.map.columns ? { lane, column } : null;
  }

  listen() {
    this.root.addEventListener("pointermove", event => {
      const at = this.cellAt(event);
      tip(event, at && this.tell(at.lane, at.column));
    });
    this.root.addEventListener("pointerleave", event => tip(event, ""));
    this.root.addEventListener("click", event => {
      const at = this.cellAt(event);
      if (at) this.moveTo(at, true);
    });
    this.root.addEventListener("keydown", event => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Enter" && this.cursor) this.moveTo(this.cursor, true);
      if (!step || !this.map.columns) return;
      event.preventDefault();
      const within = (v, n) => Math.min(n - 1, Math.max(0, v)), at = this.cursor || { lane: 0, column: 0 };
      const [down, right] = this.cursor ? step : [0, 0];
      this.moveTo({ lane: within(at.lane + down, this.lanes), column: within(at.column + right, this.map.columns) }, false);
    });
  }

  /* To a cell, and on to its tap when asked; the map itself stays as it is. */
  moveTo(at, on) {
    this.cursor = at;
    this.drawChosen();
    const tap = on && this.tapOf(at.lane, at.column);
    if (!tap) return;
    this.inside = true;
    this.go(tap);
    this.inside = false;
  }

  /* Called from outside: shows the kind of a tap and its worst cell. */
  select(path) {
    const kind = this.kinds.find(k => k.paths.includes(path));
    this.chosenLane = kind ? kind.paths.indexOf(path) : -1;
    if (kind && !this.inside) {
      this.choice.value = kind.index;
      this.pick();
      this.cursor = { lane: this.chosenLane, column: this.worstColumn(this.chosenLane) };
      this.plot.caption(this.caption());
    }
    this.plot.draw();
  }

  /* Of a lane: the first wrong choice, else the worst ratio, else the first choice that differs. */
  worstColumn(lane) {
    const { cells, columns, flips } = this.map, row = cells.subarray(lane * columns, (lane + 1) * columns);
    const differ = [...flips].filter(([at]) => Math.floor(at / columns) === lane).sort((a, b) => b[1].wrong - a[1].wrong || a[0] - b[0])[0];
    const worst = row.indexOf(worstIn(row, 0, columns));
    return differ && (differ[1].wrong || worst < 0) ? differ[0] % columns : Math.max(0, worst);
  }
}
