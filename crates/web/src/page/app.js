// The page: requests new data once an interval and shows it. When the agent goes away, it keeps showing the
// last data and says since when.

import { Chart, ramp, spark, swatch } from "./charts.js";
import { Curves, flatFrom } from "./curves.js";
import { Data, lines, pageCache, pick, shares } from "./data.js";
import { bytes, count, element, fixed, ownersName, percent, plural, shortNames, span } from "./format.js";
import { Groups, showDecisions } from "./tables.js";

const PATIENCE_MS = 4000;
// For the whole history, about a megabyte. The server's patience is as long.
const LONG_PATIENCE_MS = 30_000;
const LONGEST_PAUSE_MS = 5000;
const OTHERS = "others";

const $ = (id) => document.getElementById(id);
const data = new Data();
const dark = matchMedia("(prefers-color-scheme: dark)");
const page = { picked: null, who: "contending", paused: false, seenAt: null, failures: 0 };

const tenths = (end) => [0, 0.25, 0.5, 0.75, 1].map((part) => part * end);
const share = new Chart($("share"), { stacked: true, top: () => 1, steps: tenths, axis: (v) => percent(v, 0), format: (v) => percent(v), pair: "has / by weight" });
const ideal = new Chart($("ideal"), { log: 8, ideal: 1, steps: () => [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8], axis: fraction, format: (v) => fixed(v) });
const cache = new Chart($("cache"), { stacked: true, top: roundTop, steps: tenths, axis: bytes, format: bytes, pair: "holds / threshold" });
const hits = new Chart($("hits"), { top: () => 1, steps: tenths, axis: (v) => percent(v, 0), format: (v) => percent(v) });
const worth = new Curves($("worth"));
const groups = new Groups($("groups"), $("groups-note"), (path) => choose(path));

function fraction(value) {
  return value < 1 ? `1/${1 / value}` : String(value);
}

// The top of an axis is a power of two or three quarters of one: both divide into four round marks.
function roundTop(values) {
  const top = Math.max(1 << 20, ...values.filter((value) => value !== null));
  const power = 2 ** Math.ceil(Math.log2(top));
  return top <= power * 0.75 ? power * 0.75 : power;
}

function choose(path) {
  page.picked = page.picked === path ? null : path;
  show();
}

async function ask(path, patienceMs = PATIENCE_MS) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(patienceMs), cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function askHistory(since) {
  return ask(`/api/history?since=${since}`, since === 0 ? LONG_PATIENCE_MS : PATIENCE_MS);
}

async function update() {
  const report = await ask("/api/status");
  if (!data.take(await askHistory(data.since()))) data.take(await askHistory(0));
  data.report = report;
}

async function run() {
  for (;;) {
    if (!page.paused && !document.hidden) {
      try {
        await update();
        page.seenAt = Date.now();
        page.failures = 0;
        show();
      } catch {
        page.failures += 1;
      }
      tellState();
    }
    const interval = Math.max(1000, (data.report?.interval_s ?? 1) * 1000);
    const pause = page.failures > 0 ? Math.min(LONGEST_PAUSE_MS, 1000 * page.failures) : Math.min(interval, LONGEST_PAUSE_MS);
    await new Promise((done) => setTimeout(done, pause));
  }
}

// Shows the agent's state: live, waiting, stuck or gone.
function tellState() {
  let [kind, words] = ["live", "live"];
  const interval = data.report?.interval_s ?? 1;
  const age = data.ageS;
  if (page.paused) [kind, words] = ["wait", "paused"];
  else if (page.failures > 0 && page.seenAt === null) [kind, words] = ["gone", "no answer from the agent"];
  else if (page.failures > 0) [kind, words] = ["gone", `no answer from the agent, last seen ${span((Date.now() - page.seenAt) / 1000)} ago`];
  else if (page.seenAt === null) [kind, words] = ["wait", "connecting"];
  else if (age === null) [kind, words] = ["wait", "the agent has not taken its first step yet"];
  else if (age > Math.max(1, 3 * interval)) [kind, words] = ["gone", `the agent is stuck, its last step was ${span(age)} ago`];
  $("state").className = `state ${kind}`;
  // A screen reader would read an unchanged text out again.
  if ($("state-text").textContent !== words) $("state-text").textContent = words;
  document.querySelector("main").classList.toggle("stale", kind === "gone");
}

function show() {
  const { report, points } = data;
  if (!report) return;
  const chosen = pick(points);
  const names = shortNames([...report.groups.map((group) => group.path), ...chosen.map((one) => one.path)]);
  for (const group of report.groups) {
    const name = ownersName(group);
    if (name) names.set(group.path, name);
  }
  const colors = new Map();
  const series = chosen.map((one, rank) => {
    const color = ramp(rank, chosen.length, dark.matches);
    colors.set(one.path, color);
    return { id: one.id, path: one.path, name: names.get(one.path), color };
  });
  const picked = series.find((one) => one.path === page.picked)?.id ?? null;
  showHead(report);
  showLegend(series);
  showFigures(series, picked);
  groups.show({ report, names, colors, picked: page.picked });
  const observing = report.mode === "observe";
  showDecisions($("decisions").tBodies[0], $("decisions-note"), { decisions: data.decisions, names, picked: page.picked, observing });
  showProblems(report.problems);
}

function showHead(report) {
  const contending = report.groups.filter((group) => group.contending).length;
  const up = Date.now() / 1000 + data.skewMs / 1000 - report.since_unix_s;
  $("setup").textContent = `mode ${report.mode}, objective ${report.objective} · ${plural(report.groups.length, "group")}, ${count(contending)} contending · counted by ${report.observer ?? "nothing"} · version ${report.version}, up ${span(up)}`;
  const host = report.host;
  const ratio = (some, full) => (typeof some === "number" ? `${percent(some, 0)} some, ${percent(full, 0)} all` : "not known");
  const past = (get) => spark(data.points.slice(-120).map(get));
  const cards = [
    ["Proportionality variation", fixed(report.pv), "0 is ideal", past((p) => p.pv)],
    ["Share error", percent(report.share_error), "bandwidth with the wrong group", past((p) => p.share_error)],
    ["Free memory", bytes(host.free_bytes), `of ${bytes(host.total_bytes)}`, past((p) => p.free_bytes)],
    ["Page cache", bytes(host.file_bytes), "of the host"],
    ["Waiting for memory", percent(host.memory_some, 0), ratio(host.memory_some, host.memory_full)],
    ["Waiting for I/O", percent(host.io_some, 0), ratio(host.io_some, host.io_full)],
    ["Step", `${fixed(report.tick_us / 1000, 1)} ms`, `every ${report.interval_s} s, longest ${fixed(report.longest_tick_us / 1000, 1)} ms`],
  ];
  $("cards").replaceChildren(...cards.map(([name, value, more, figure]) => element("li", {}, element("span", {}, name), element("b", {}, value), element("span", {}, more), ...(figure ? [figure] : []))));
}

function showLegend(series) {
  const legend = $("legend");
  const focused = document.activeElement?.closest("#legend button")?.dataset.path;
  const buttons = series.map((one) => {
    const button = element("button", { type: "button", title: one.path, "data-path": one.path, "aria-pressed": String(page.picked === one.path) }, swatch(one.color), element("span", {}, one.name));
    button.addEventListener("click", () => choose(one.path));
    return button;
  });
  const items = buttons.map((button) => element("li", {}, button));
  // Groups that hold groups have no color and are not drawn.
  const others = data.report.groups.filter((group) => group.color).length - series.length;
  if (others > 0) {
    items.push(element("li", { class: "others" }, swatch("var(--other)"), element("span", {}, `${OTHERS} (${others})`)));
  }
  legend.replaceChildren(...items);
  buttons.find((button) => button.dataset.path === focused)?.focus();
}

function showFigures(series, picked) {
  const { points } = data;
  const times = points.map((point) => point.unix_ms);
  const now = Math.max(Date.now() + data.skewMs, times.at(-1) ?? 0);
  const gapMs = Math.max(3500, 2.5 * 1000 * data.report.interval_s);
  const base = { times, now: page.failures > 0 ? times.at(-1) ?? now : now, gapMs, picked };
  const stacked = ({ measured, promised }) => {
    const all = series.map((one, at) => ({ ...one, values: measured.own[at], border: promised.own[at] }));
    if (measured.others.some((value) => value !== null)) {
      all.push({ id: OTHERS, name: OTHERS, color: "var(--other)", values: measured.others, border: promised.others });
    }
    return all;
  };
  const plain = (values) => series.map((one, at) => ({ ...one, values: values[at] }));
  const empty = (all) => all.every((one) => one.values.every((value) => value === null || value === undefined));
  const shown = (chart, all, none) => chart.show({ ...base, series: all, none: points.length > 0 && empty(all) ? none : "" });
  shown(share, stacked(shares(points, series, page.who)), page.who === "all" ? "no bandwidth" : "no group contends");
  shown(ideal, plain(lines(points, series, (group) => (group.contending ? group.of_ideal : null))), "no group contends");
  shown(cache, stacked(pageCache(points, series)), "not known");
  shown(hits, plain(lines(points, series, (group) => group.hit)), "not counted: needs the BPF observer");
  showWorth(series, picked);
}

function showWorth(series, picked) {
  const groups = new Map(data.report.groups.map((group) => [group.path, group]));
  const known = series.map((one) => ({ ...one, held: groups.get(one.path)?.file_bytes ?? null, worth: groups.get(one.path)?.worth }));
  const drawn = known.filter((one) => one.worth);
  const sizes = drawn.flatMap((one) => [one.held, flatFrom(one.worth)]);
  worth.show({ series: drawn, picked, end: roundTop(sizes), none: drawn.length > 0 ? "" : "no curve yet: needs the BPF observer and reads" });
}

function showProblems(problems) {
  $("problems").hidden = problems.length === 0;
  const items = problems.slice(0, 20).map((one) => element("li", {}, one.cause, element("small", {}, one.remedy)));
  if (problems.length > 20) items.push(element("li", {}, `and ${problems.length - 20} more`));
  $("problems").querySelector("ul").replaceChildren(...items);
}

$("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  $("pause").setAttribute("aria-pressed", String(page.paused));
  $("pause").textContent = page.paused ? "Resume" : "Pause";
  tellState();
});
$("filter").addEventListener("input", (event) => {
  groups.filter = event.target.value.trim();
  groups.show(groups.last);
});
for (const radio of document.querySelectorAll("input[name=who]")) {
  radio.addEventListener("change", () => {
    page.who = radio.value;
    show();
  });
}
dark.addEventListener("change", show);
setInterval(tellState, 1000);
run();
