// The agent's data, which is the history (updated by requests for new points), the last report, and the choice
// of groups for the figures.

const WINDOW_MS = 600_000;
const POINTS = 600;
const DECISIONS = 200;
export const SERIES = 20;
// Points for which a group still counts as contending after it contended. Without this it would flicker.
const LATELY = 5;

export class Data {
  points = [];
  decisions = new Map();
  report = null;
  start = null;
  ageS = null;
  // The agent's clock minus this clock.
  skewMs = 0;

  last() {
    return this.points.at(-1) ?? null;
  }

  since() {
    let tick = this.last()?.tick ?? 0;
    for (const one of this.decisions.values()) tick = Math.max(tick, one.tick);
    return tick;
  }

  // Adds an answer of /api/history; false: it is from another agent, so the whole history must be requested.
  take(answer) {
    if (this.start !== null && this.start !== answer.since_unix_s) {
      this.points = [];
      this.decisions.clear();
      this.start = null;
      return false;
    }
    this.start = answer.since_unix_s;
    this.ageS = answer.age_s;
    this.skewMs = answer.now_unix_ms - Date.now();
    const at = Object.fromEntries(answer.columns.map((name, index) => [name, index]));
    for (const point of answer.points) {
      const groups = new Map();
      for (const row of point.groups) {
        const { id, path } = answer.groups[row[at.group]];
        groups.set(id, {
          path,
          proportion: row[at.proportion],
          bytes_per_s: row[at.bytes_per_s],
          file: row[at.file_bytes],
          threshold: row[at.threshold_bytes],
          hit: row[at.hit_ratio],
          of_ideal: row[at.of_ideal],
          contending: row[at.contending],
        });
      }
      this.points.push({ ...point, groups });
    }
    const oldest = answer.now_unix_ms - WINDOW_MS;
    const keep = this.points.findIndex((point) => point.unix_ms >= oldest);
    this.points.splice(0, Math.max(keep, this.points.length - POINTS, 0));
    for (const one of answer.decisions) {
      const key = [one.id, one.knob, one.why].join(" ");
      this.decisions.delete(key);
      this.decisions.set(key, one);
    }
    const all = [...this.decisions.entries()].sort((a, b) => b[1].last_unix_ms - a[1].last_unix_ms);
    this.decisions = new Map(all.slice(0, DECISIONS));
    return true;
  }
}

const plus = (sum, value) => (value === null || value === undefined ? sum : (sum ?? 0) + value);

// The groups to draw: those with most of the bandwidth or of the page cache over the window, lowest weight
// first as in the stacks.
export function pick(points) {
  const score = new Map();
  for (const point of points) {
    let bandwidth = point.rest.bytes_per_s;
    let cache = point.rest.file_bytes;
    for (const group of point.groups.values()) {
      bandwidth += group.bytes_per_s ?? 0;
      cache += group.file ?? 0;
    }
    for (const [id, group] of point.groups) {
      const old = score.get(id) ?? { score: 0 };
      const share = (bandwidth > 0 ? (group.bytes_per_s ?? 0) / bandwidth : 0) + (cache > 0 ? (group.file ?? 0) / cache : 0);
      score.set(id, { score: old.score + share, path: group.path, proportion: group.proportion ?? old.proportion ?? 0 });
    }
  }
  const chosen = [...score].sort((a, b) => b[1].score - a[1].score).slice(0, SERIES);
  chosen.sort((a, b) => a[1].proportion - b[1].proportion || (a[1].path < b[1].path ? -1 : 1));
  return chosen.map(([id, { path }]) => ({ id, path }));
}

// One value per point for each chosen group, and one for all others together.
function columns(points, series, get, rest) {
  const own = series.map(({ id }) => points.map((point, at) => {
    const group = point.groups.get(id);
    return group ? get(group, at, id) : null;
  }));
  const chosen = new Set(series.map(({ id }) => id));
  const others = points.map((point, at) => {
    let sum = rest(point);
    for (const [id, group] of point.groups) {
      if (!chosen.has(id)) sum = plus(sum, get(group, at, id));
    }
    return sum;
  });
  return { own, others };
}

// Measured shares of bandwidth and the shares by weight, of the contending groups or of all.
export function shares(points, series, who) {
  const counts = (group, at, id) => {
    if (who === "all") return group.bytes_per_s > 0;
    for (let back = 0; back < LATELY && at >= back; back += 1) {
      if (points[at - back].groups.get(id)?.contending) return true;
    }
    return false;
  };
  const all = who === "all";
  const others = (point, value) => (value > 0 && point.rest.bytes_per_s > 0 ? value : null);
  const measured = columns(points, series, (g, at, id) => (counts(g, at, id) ? g.bytes_per_s : null),
    (point) => others(point, all ? point.rest.bytes_per_s : point.rest.contending_bytes_per_s));
  const promised = columns(points, series, (g, at, id) => (counts(g, at, id) ? g.proportion : null),
    (point) => others(point, all ? point.rest.proportion : point.rest.contending_proportion));
  return { measured: normalized(measured, points.length), promised: normalized(promised, points.length) };
}

function normalized({ own, others }, length) {
  const parts = [...own, others].map((values) => [...values]);
  for (let at = 0; at < length; at += 1) {
    let sum = null;
    for (const values of parts) sum = plus(sum, values[at]);
    for (const values of parts) values[at] = sum > 0 && values[at] !== null ? values[at] / sum : null;
  }
  return { own: parts.slice(0, -1), others: parts.at(-1) };
}

export function pageCache(points, series) {
  const some = (point, value) => (point.rest.groups > 0 ? value : null);
  return {
    measured: columns(points, series, (g) => g.file, (p) => some(p, p.rest.file_bytes)),
    promised: columns(points, series, (g) => g.threshold, (p) => some(p, p.rest.threshold_bytes)),
  };
}

export function lines(points, series, get) {
  return columns(points, series, get, () => null).own;
}
