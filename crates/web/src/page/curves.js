// A figure over sizes of page cache: the miss-ratio curve of each group, and the group's place on it.

import { dimmed, n, svg } from "./charts.js";
import { bytes, percent } from "./format.js";

const STEPS = [0, 0.25, 0.5, 0.75, 1];

// The size from which on a curve is flat. The flat part may extend up to the host's memory.
export const flatFrom = ({ points }) => points.find((at) => at.hit_ratio === points.at(-1).hit_ratio).cache_bytes;

export class Curves {
  constructor(figure) {
    this.plot = figure.querySelector(".plot");
    this.title = figure.querySelector("h3").textContent;
    this.svg = svg("svg", { role: "img" });
    this.plot.append(this.svg);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // model: series [{id, name, color, held, worth}], picked, end (bytes), none (words if empty)
  show(model) {
    this.model = model;
    this.draw();
  }

  draw() {
    const box = this.plot.getBoundingClientRect();
    if (!this.model || box.width === 0) return;
    const { series, picked, end, none } = this.model;
    const [left, right, top, bottom] = [48, box.width - 12, 8, box.height - 22];
    const x = (size) => n(left + Math.min(size / end, 1) * (right - left));
    const y = (ratio) => n(bottom - ratio * (bottom - top));
    this.svg.replaceChildren();
    for (const mark of STEPS) {
      const anchor = mark === 0 ? "start" : mark === 1 ? "end" : "middle";
      this.svg.append(
        svg("line", { class: mark === 0 ? "axis" : "grid", x1: left, x2: n(right), y1: y(mark), y2: y(mark) }),
        svg("text", { x: left - 6, y: y(mark), dy: "0.35em", "text-anchor": "end" }, percent(mark, 0)),
        svg("text", { x: x(mark * end), y: n(bottom + 15), "text-anchor": anchor }, bytes(mark * end)),
      );
    }
    this.svg.setAttribute("aria-label", `${this.title}: ${none || series.map(words).join("; ")}`);
    if (none) {
      this.svg.append(svg("text", { class: "none", x: n((left + right) / 2), y: y(0.5), "text-anchor": "middle" }, none));
      return;
    }
    for (const one of series) {
      const d = `M${[[0, 0], ...one.worth.points.map((at) => [at.cache_bytes, at.hit_ratio])].map(([size, ratio]) => `${x(size)} ${y(ratio)}`).join("L")}`;
      const line = svg("path", { d, stroke: one.color, class: dimmed(one, picked, "line"), "data-id": one.id });
      line.append(svg("title", {}, words(one)));
      this.svg.append(svg("path", { d, class: dimmed(one, picked, "casing") }), line);
    }
    // The dots are drawn above all lines.
    for (const one of series) {
      const ratio = one.worth.now_hit_ratio;
      if (typeof ratio !== "number" || typeof one.held !== "number") continue;
      const dot = svg("circle", { cx: x(one.held), cy: y(ratio), r: 5, fill: one.color, class: dimmed(one, picked, "stands") });
      dot.append(svg("title", {}, words(one)));
      this.svg.append(dot);
    }
  }
}

function words({ name, held, worth }) {
  const hits = worth.now_hit_ratio === null ? "more than its curve covers" : `hit ratio ${percent(worth.now_hit_ratio)}`;
  return `${name} holds ${bytes(held)}, ${hits}`;
}
