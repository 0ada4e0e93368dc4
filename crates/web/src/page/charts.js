// Two kinds of figure over time: stacked areas, and lines. They are drawn as SVG, element by element, in
// pixels of the available space. The left and right arrow keys move the time that is read out.

import { clock, element } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WINDOW_MS = 600_000;

export function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A color ramp by rank (after viridis). Its lightness rises, so the order shows without color too.
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
export function ramp(rank, count, dark) {
  const [from, to] = dark ? [0.16, 0.97] : [0.04, 0.9];
  const at = (from + (to - from) * (count > 1 ? rank / (count - 1) : 0.5)) * (STOPS.length - 1);
  const stop = Math.min(Math.floor(at), STOPS.length - 2);
  const mix = STOPS[stop].map((a, i) => Math.round(a + (STOPS[stop + 1][i] - a) * (at - stop)));
  return `rgb(${mix.join(" ")})`;
}

export const n = (value) => value.toFixed(1);

// While the pointer is on one figure, all figures show the same moment.
const charts = [];
let moment = null;
let pointed = null;
function point(at, chart = null) {
  moment = at;
  pointed = chart;
  for (const chart of charts) chart.mark();
}

export class Chart {
  // options: stacked, top(values) -> the axis' end, steps(end) -> its marks, format, log, ideal
  constructor(figure, options) {
    this.options = options;
    this.plot = figure.querySelector(".plot");
    this.title = figure.querySelector("h3").textContent;
    this.svg = svg("svg", { role: "img", tabindex: "0" });
    this.tip = element("div", { class: "tip" });
    this.tip.hidden = true;
    this.plot.append(this.svg, this.tip);
    this.model = null;
    this.svg.addEventListener("pointermove", (event) => point(this.timeAt(event.offsetX), this));
    this.svg.addEventListener("pointerleave", () => point(null));
    this.svg.addEventListener("blur", () => point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    charts.push(this);
  }

  // model: times, now, series [{id, name, color, values, border}], picked, none (words if empty)
  show(model) {
    this.model = model;
    this.draw();
  }

  key(event) {
    const times = this.model?.times ?? [];
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (step === undefined || times.length === 0) {
      if (event.key === "Escape") point(null);
      return;
    }
    event.preventDefault();
    const at = moment === null ? times.length : this.nearest(moment);
    point(times[Math.max(0, Math.min(times.length - 1, at + step))], this);
  }

  timeAt(x) {
    const part = Math.max(0, Math.min(1, (x - this.left) / this.width));
    return this.model ? this.from + part * (this.model.now - this.from) : null;
  }

  nearest(time) {
    const { times } = this.model;
    let best = 0;
    times.forEach((one, at) => {
      if (Math.abs(one - time) < Math.abs(times[best] - time)) best = at;
    });
    return best;
  }

  x(time) {
    return this.left + ((time - this.from) / (this.model.now - this.from)) * this.width;
  }

  y(value) {
    const { log } = this.options;
    const part = log
      ? (Math.log2(Math.max(value, 1 / log)) + Math.log2(log)) / (2 * Math.log2(log))
      : value / this.end;
    return this.bottom - Math.max(0, Math.min(1, part)) * (this.bottom - this.topY);
  }

  draw() {
    const { model, options } = this;
    if (!model) return;
    const box = this.plot.getBoundingClientRect();
    if (box.width === 0) return;
    const wide = box.width > 430 && model.series.length > 0;
    this.left = 48;
    this.width = box.width - this.left - (wide ? 96 : 8);
    this.topY = 8;
    this.bottom = box.height - 22;
    const age = model.times.length > 0 ? model.now - model.times[0] : 0;
    this.from = model.now - Math.min(WINDOW_MS, Math.max(120_000, age));
    const { tops, sums } = options.stacked ? this.stack() : { tops: null, sums: [] };
    this.end = options.log ? options.log : options.top(sums);
    this.svg.replaceChildren();
    this.axes();
    if (model.times.length === 0 || model.none) {
      const words = model.none || "nothing seen yet";
      this.svg.append(svg("text", { class: "none", x: n(this.left + this.width / 2), y: n((this.topY + this.bottom) / 2), "text-anchor": "middle" }, words));
    } else if (options.stacked) {
      this.areas(tops);
    } else {
      this.curves();
    }
    if (wide && !model.none) this.names(tops);
    this.rule = svg("line", { class: "cursor", y1: this.topY, y2: this.bottom, visibility: "hidden" });
    this.svg.append(this.rule);
    this.svg.setAttribute("aria-label", this.words(model.times.length - 1));
    this.mark();
  }

  // Upper edges of each area and of each promised area, and the height of the stack.
  stack() {
    const { series, times } = this.model;
    const pile = (get) => {
      const sums = times.map(() => null);
      const tops = series.map((one) => times.map((_, at) => {
        const value = get(one)?.[at] ?? null;
        if (value !== null) sums[at] = (sums[at] ?? 0) + value;
        return sums[at];
      }));
      return { tops, sums };
    };
    const measured = pile((one) => one.values);
    const promised = pile((one) => one.border);
    return { tops: { measured: measured.tops, promised: promised.tops, sums: measured.sums }, sums: [...measured.sums, ...promised.sums] };
  }

  axes() {
    const { options, model } = this;
    for (const mark of options.steps(this.end)) {
      const y = n(this.y(mark));
      this.svg.append(
        svg("line", { class: options.ideal === mark ? "ideal" : "grid", x1: this.left, x2: n(this.left + this.width), y1: y, y2: y }),
        svg("text", { x: this.left - 6, y, dy: "0.35em", "text-anchor": "end" }, options.axis(mark)),
      );
    }
    this.svg.append(svg("line", { class: "axis", x1: this.left, x2: n(this.left + this.width), y1: this.bottom, y2: this.bottom }));
    const minutes = (model.now - this.from) / 60_000;
    const step = minutes > 6 ? 2 : 1;
    for (let at = 0; at <= minutes + 0.01; at += step) {
      const x = this.x(model.now - at * 60_000);
      const text = at === 0 ? "now" : `−${at} min`;
      const anchor = at === 0 ? "end" : x < this.left + 20 ? "start" : "middle";
      this.svg.append(svg("text", { x: n(x), y: n(this.bottom + 15), "text-anchor": anchor }, text));
    }
  }

  // Runs of points without a gap: index ranges [from, to] in which `known` holds everywhere.
  runs(known) {
    const { times } = this.model;
    const gap = this.model.gapMs;
    const runs = [];
    let open = null;
    times.forEach((time, at) => {
      const joined = open && at > 0 && time - times[at - 1] <= gap;
      if (!known(at)) {
        open = null;
      } else if (joined) {
        open[1] = at;
      } else {
        open = [at, at];
        runs.push(open);
      }
    });
    return runs;
  }

  path(values, [from, to], back = false) {
    const { times } = this.model;
    const points = [];
    for (let at = from; at <= to; at += 1) points.push(`${n(this.x(times[at]))} ${n(this.y(values[at] ?? 0))}`);
    // An isolated point is drawn one second wide, to be visible.
    if (from === to) points.push(`${n(this.x(times[to] + 1000))} ${n(this.y(values[to] ?? 0))}`);
    return (back ? points.reverse() : points).join("L");
  }

  areas(tops) {
    const { series, picked } = this.model;
    const runs = this.runs((at) => tops.sums[at] !== null);
    series.forEach((one, rank) => {
      const below = rank > 0 ? tops.measured[rank - 1] : [];
      const d = runs.map((run) => `M${this.path(tops.measured[rank], run)}L${this.path(below, run, true)}Z`).join("");
      if (d) this.svg.append(svg("path", { d, fill: one.color, class: dimmed(one, picked, "band"), "data-id": one.id }));
    });
    // A picked group has two borders: its upper edge, and the upper edge of the group below it.
    const all = () => this.apart(series.map((_, rank) => rank).slice(0, -1), tops.promised);
    const shown = picked ? series.flatMap((one, rank) => (one.id === picked ? [rank - 1, rank] : [])) : all();
    const dashes = shown.filter((rank) => rank >= 0 && rank < series.length).map((rank) => {
      const known = this.runs((at) => tops.promised[rank][at] !== null && tops.sums[at] !== null);
      return known.map((run) => "M" + this.path(tops.promised[rank], run)).join("");
    }).join("");
    if (dashes) this.svg.append(svg("path", { d: dashes, class: "border-under" }), svg("path", { d: dashes, class: "border" }));
  }

  // Selects borders at least five pixels apart, from the bottom up.
  apart(ranks, promised) {
    const last = this.model.times.length - 1;
    let below = this.bottom;
    return ranks.filter((rank) => {
      const value = promised[rank][last];
      const y = value === null ? null : this.y(value);
      if (y !== null && below - y < 5) return false;
      below = y ?? below;
      return true;
    });
  }

  curves() {
    const { series, picked } = this.model;
    for (const one of series) {
      const runs = this.runs((at) => one.values[at] !== null && one.values[at] !== undefined);
      const d = runs.map((run) => "M" + this.path(one.values, run)).join("");
      if (!d) continue;
      this.svg.append(
        svg("path", { d, class: dimmed(one, picked, "casing") }),
        svg("path", { d, stroke: one.color, class: dimmed(one, picked, "line"), "data-id": one.id }),
      );
    }
  }

  // Draws names at the right end of each area or line, moved apart.
  names(tops) {
    const { series, times, picked } = this.model;
    const last = times.length - 1;
    const places = [];
    series.forEach((one, rank) => {
      if (picked && one.id !== picked) return;
      let y = null;
      if (tops) {
        const upper = tops.measured[rank][last];
        const lower = rank > 0 ? tops.measured[rank - 1][last] ?? 0 : 0;
        if (upper !== null && this.y(lower) - this.y(upper) >= 11) y = (this.y(upper) + this.y(lower)) / 2;
      } else if (one.values[last] !== null && one.values[last] !== undefined) {
        y = this.y(one.values[last]);
      }
      if (y !== null) places.push({ one, y });
    });
    if (places.length > 16) return;
    places.sort((a, b) => a.y - b.y);
    for (let at = 1; at < places.length; at += 1) places[at].y = Math.max(places[at].y, places[at - 1].y + 12.5);
    let room = this.bottom;
    for (const place of places.reverse()) {
      place.y = Math.min(place.y, room);
      room = place.y - 12.5;
      const name = cut(place.one.name);
      this.svg.append(svg("text", { class: "end", x: n(this.left + this.width + 7), y: n(place.y), dy: "0.35em" }, name));
    }
  }

  // The values at one point in time, in words.
  words(at) {
    const { series, times } = this.model;
    if (at < 0 || this.model.none) return `${this.title}: ${this.model.none || "nothing seen yet"}`;
    const said = this.values(at, series.length).map(({ one, text }) => `${one.name} ${text}`);
    return `${this.title} at ${clock(times[at])}: ${said.join(", ") || "nothing known"}`;
  }

  values(at, most) {
    const known = this.model.series.filter((one) => one.values[at] !== null && one.values[at] !== undefined);
    known.sort((a, b) => (b.id === this.model.picked) - (a.id === this.model.picked) || b.values[at] - a.values[at]);
    return known.slice(0, most).map((one) => {
      const border = one.border?.[at];
      const promised = border === null || border === undefined ? "" : ` / ${this.options.format(border)}`;
      return { one, text: this.options.format(one.values[at]) + promised };
    });
  }

  mark() {
    const { model } = this;
    const hide = Boolean(moment === null || !model || model.times.length === 0 || model.none || !this.rule);
    this.tip.hidden = hide || pointed !== this;
    this.rule?.setAttribute("visibility", hide ? "hidden" : "visible");
    if (hide) return;
    const at = this.nearest(moment);
    const x = this.x(model.times[at]);
    this.rule.setAttribute("x1", n(x));
    this.rule.setAttribute("x2", n(x));
    const rows = this.values(at, 8).map(({ one, text }) => element("p", {}, swatch(one.color), element("span", {}, one.name), element("b", {}, text)));
    const more = model.series.length > 8 ? [element("p", {}, "…")] : [];
    const head = element("p", {}, element("span", {}, clock(model.times[at])), element("span", {}), element("span", {}, this.options.pair ?? ""));
    this.tip.replaceChildren(head, ...rows, ...more);
    const right = x > this.left + this.width / 2;
    this.tip.style.left = right ? "auto" : `${x + 10}px`;
    this.tip.style.right = right ? `${this.plot.clientWidth - x + 10}px` : "auto";
    if (document.activeElement === this.svg) this.svg.setAttribute("aria-label", this.words(at));
  }
}

// Cuts the front of a name, because the ends of paths distinguish groups. A name whose end was already cut
// keeps its front.
function cut(name) {
  if (name.length <= 14) return name;
  return name.endsWith("…") ? name.slice(0, 13) + "…" : "…" + name.slice(-13);
}

export function dimmed(one, picked, name) {
  return picked && one.id !== picked ? name + " dim" : name;
}

export function swatch(color) {
  const made = element("i", { class: "swatch", "aria-hidden": "true" });
  made.style.background = color;
  return made;
}

// A small line without axes.
export function spark(values) {
  const known = values.filter((value) => value !== null);
  const made = svg("svg", { viewBox: "0 0 72 24", "aria-hidden": "true", preserveAspectRatio: "none" });
  if (known.length < 2) return made;
  const top = Math.max(...known) || 1;
  let pen = "M";
  const d = values.map((value, at) => {
    if (value === null) {
      pen = "M";
      return "";
    }
    const to = `${pen}${n((at / (values.length - 1)) * 72)} ${n(23 - (value / top) * 21)}`;
    pen = "L";
    return to;
  }).join("");
  made.append(svg("path", { d, class: "spark", "vector-effect": "non-scaling-stroke" }));
  return made;
}
