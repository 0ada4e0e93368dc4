// The table of groups and the list of decisions. Rows are updated in place, not recreated, so that the
// keyboard focus is not lost every second.

import { swatch } from "./charts.js";
import { bytes, clock, count, DASH, element, fixed, knob, percent, plural, rate } from "./format.js";

const MOST_ROWS = 100;
const MOST_DECISIONS = 60;

// Columns: head, sort key, content (text or nodes). The first sort by numbers is descending.
const COLUMNS = [
  { head: "Group", by: (g) => g.path, words: true },
  { head: "Weight", by: (g) => g.weight, show: (g) => count(g.weight) },
  { head: "Bandwidth", by: (g) => g.bytes_per_s, show: (g) => rate(g.bytes_per_s) },
  { head: "Share", by: (g) => g.share, show: (g) => percent(g.share) },
  { head: "Of ideal", by: (g) => g.of_ideal, show: (g) => fixed(g.of_ideal) },
  { head: "State", by: (g) => (g.color ? ["green", "yellow", "red"].indexOf(g.color) : null), show: color, help: "green: satisfied; yellow: would do better with more; red: not satisfied" },
  { head: "Page cache / threshold", by: (g) => g.file_bytes, show: cache },
  { head: "Hits", by: (g) => g.hit_ratio, show: (g) => percent(g.hit_ratio) },
  { head: "Refaults", by: (g) => g.refault_pages_per_s, show: (g) => (typeof g.refault_pages_per_s === "number" ? count(g.refault_pages_per_s) + "/s" : DASH), help: "pages read again soon after they were evicted" },
  { head: "Stalled", by: (g) => g.stalled, show: (g) => percent(g.stalled), help: "share of the time in which some task waited for memory or I/O" },
  { head: "Gain", by: (g) => g.gain, show: (g) => fixed(g.gain), help: "the feedback's factor on its share" },
];

function color(group) {
  if (!group.color) return DASH;
  const word = element("span", { class: "state-word", title: whence(group) }, group.color);
  word.classList.add(group.color);
  return word;
}

// The source of a group's color. The application's reason becomes text, never markup.
function whence(group) {
  const said = group.declared;
  if (!said) return group.color_source;
  const reason = said.reason ? `: ${said.reason}` : "";
  return `${group.color_source}; ${said.channel} ${said.standing} for ${fixed(said.unchanged_s)} s${reason}`;
}

function cache(group) {
  const text = `${bytes(group.file_bytes)} / ${bytes(group.threshold_bytes)}`;
  const end = Math.max(group.file_bytes ?? 0, group.threshold_bytes ?? 0) * 1.15;
  if (!(end > 0) || group.file_bytes === null || group.threshold_bytes === undefined) return text;
  const bar = element("i");
  bar.style.width = `${(group.file_bytes / end) * 100}%`;
  bar.classList.toggle("over", group.file_bytes > group.threshold_bytes);
  const mark = element("u");
  mark.style.left = `${(group.threshold_bytes / end) * 100}%`;
  const cell = element("span", {}, element("span", { class: "meter", "aria-hidden": "true" }, bar, mark), element("span", {}, text));
  return cell;
}

export class Groups {
  sort = { column: 2, down: true };
  filter = "";
  rows = new Map();

  // `choose` is called with the path of the chosen group.
  constructor(table, note, choose) {
    this.note = note;
    this.choose = choose;
    this.body = table.tBodies[0];
    const row = element("tr");
    this.heads = COLUMNS.map((column, at) => {
      const button = element("button", { type: "button", title: column.help }, column.head);
      const head = element("th", { scope: "col" }, button);
      button.addEventListener("click", () => {
        this.sort = { column: at, down: this.sort.column === at ? !this.sort.down : !column.words };
        this.show(this.last);
      });
      row.append(head);
      return head;
    });
    table.tHead.append(row);
  }

  // state: report, names, colors (by path), picked (a path)
  show(state) {
    this.last = state;
    if (!state) return;
    this.heads.forEach((head, at) => {
      const mine = at === this.sort.column;
      const arrow = mine ? (this.sort.down ? " ↓" : " ↑") : "";
      head.firstChild.textContent = COLUMNS[at].head + arrow;
      if (mine) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const groups = state.report.groups;
    const total = groups.reduce((sum, group) => sum + (group.bytes_per_s ?? 0), 0);
    const wanted = this.filter.toLowerCase();
    const found = groups
      .filter((group) => `${group.path} ${group.name ?? ""}`.toLowerCase().includes(wanted))
      .map((group) => ({ ...group, share: total > 0 && typeof group.bytes_per_s === "number" ? group.bytes_per_s / total : null }));
    this.order(found);
    this.fill(found.slice(0, MOST_ROWS), state);
    const hidden = found.length - Math.min(found.length, MOST_ROWS);
    const filtered = groups.length - found.length;
    this.note.textContent = [
      groups.length === 0 ? "No group is managed yet." : "",
      hidden > 0 ? `${plural(hidden, "group")} more: sort or filter to see them.` : "",
      filtered > 0 ? `${plural(filtered, "group")} filtered out.` : "",
    ].filter(Boolean).join(" ");
  }

  order(groups) {
    const { by } = COLUMNS[this.sort.column];
    const sign = this.sort.down ? -1 : 1;
    groups.sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      const missing = (value) => value === null || value === undefined;
      // Unknown values come last in both directions.
      if (missing(x) || missing(y)) return missing(x) - missing(y) || (a.path < b.path ? -1 : 1);
      if (x !== y) return (x < y ? -1 : 1) * sign;
      return a.path < b.path ? -1 : 1;
    });
  }

  fill(groups, { names, colors, picked }) {
    const focused = document.activeElement;
    const shown = new Set();
    let before = null;
    for (const group of groups) {
      shown.add(group.path);
      let row = this.rows.get(group.path);
      if (!row) {
        row = this.row(group.path);
        this.rows.set(group.path, row);
      }
      row.name.textContent = names.get(group.path) ?? group.path;
      row.swatch.style.background = colors.get(group.path) ?? "var(--other)";
      row.tr.classList.toggle("picked", picked === group.path);
      row.button.setAttribute("aria-pressed", String(picked === group.path));
      COLUMNS.slice(1).forEach((column, at) => row.cells[at].replaceChildren(column.show(group)));
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== row.tr) this.body.insertBefore(row.tr, place);
      before = row.tr;
    }
    for (const [path, row] of this.rows) {
      if (!shown.has(path)) {
        row.tr.remove();
        this.rows.delete(path);
      }
    }
    // A moved row has lost the focus.
    if (this.body.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  row(path) {
    const name = element("span");
    const mark = swatch("");
    const button = element("button", { class: "name", type: "button", title: path, "aria-pressed": "false" }, mark, name);
    button.addEventListener("click", () => this.choose(path));
    const tr = element("tr", {}, element("th", { scope: "row" }, button));
    const cells = COLUMNS.slice(1).map(() => element("td"));
    tr.append(...cells);
    return { tr, name, button, swatch: mark, cells };
  }
}

// The last decisions, the newest first; of the picked group only, if there is one.
export function showDecisions(body, note, { decisions, names, picked, observing }) {
  const all = [...decisions.values()].filter((one) => !picked || one.path === picked);
  const rows = all.slice(0, MOST_DECISIONS).map((one) => element("tr", {},
    element("td", {}, clock(one.last_unix_ms)),
    element("td", { title: one.path }, names.get(one.path) ?? one.path),
    element("td", {}, one.knob),
    element("td", { class: "right" }, knob(one.knob, one.prior)),
    element("td", { class: "right" }, knob(one.knob, one.value)),
    element("td", { class: "because" }, one.because),
    element("td", { class: "right", title: `since ${clock(one.first_unix_ms)}` }, count(one.times)),
  ));
  body.replaceChildren(...rows);
  const who = picked ? ` for ${names.get(picked) ?? picked}` : "";
  const observe = observing ? " Mode observe: none of this is written." : "";
  note.textContent = (rows.length > 0 ? `What was written${who} and why, the newest first.` : `Nothing was written${who} in the last ten minutes.`) + observe;
}
