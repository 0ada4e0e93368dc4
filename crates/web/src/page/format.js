// Formats numbers and names for people. An unknown value is a dash, never zero.

export const DASH = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function fixed(value, digits = 2) {
  return known(value) ? value.toFixed(digits) : DASH;
}

export function percent(value, digits = 1) {
  return known(value) ? (value * 100).toFixed(digits) + " %" : DASH;
}

export function bytes(value) {
  if (!known(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return value.toFixed(at > 0 && value < 100 ? 1 : 0) + " " + units[at];
}

// In 10^6 bytes per second, as the commands print it.
export function rate(value) {
  if (!known(value)) return DASH;
  const mb = value / 1e6;
  return (mb >= 100 ? mb.toFixed(0) : mb >= 10 ? mb.toFixed(1) : mb.toFixed(2)) + " MB/s";
}

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : DASH;
}

export function plural(n, word) {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}

export function span(seconds) {
  if (!known(seconds)) return DASH;
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString("en-GB");
}

// A knob's value: memory limits are formatted as sizes, all other values are left as they are.
export function knob(name, value) {
  if (value === null || value === undefined) return DASH;
  return name.startsWith("memory.") && /^\d+$/.test(value) ? bytes(Number(value)) : value;
}

// The first twelve digits of a container's hexadecimal ID suffice.
function shorten(part) {
  return part.replace(/[0-9a-f]{32,}/g, (hex) => hex.slice(0, 12) + "…").replace(/\.(scope|service|slice)$/, "");
}

// The name that its owner gave to a container, pod or virtual machine; null without one. An ID is no name.
export function ownersName({ kind, name }) {
  return ["container", "pod", "vm"].includes(kind) && name && !/^[0-9a-f]{12,}$/.test(name) ? name : null;
}

// Short names of paths: as many of the last components as distinguish them.
export function shortNames(paths) {
  const names = new Map();
  let open = [...new Set(paths)];
  for (let depth = 1; open.length > 0; depth += 1) {
    const byName = new Map();
    for (const path of open) {
      const parts = path.split("/").filter(Boolean);
      const whole = depth >= parts.length;
      const name = whole ? path : parts.slice(-depth).map(shorten).join("/");
      byName.set(name, [...(byName.get(name) ?? []), { path, whole }]);
    }
    open = [];
    for (const [name, same] of byName) {
      for (const { path, whole } of same) {
        if (same.length === 1 || whole) names.set(path, depth === 1 && whole ? shorten(path.split("/").pop() || path) : name);
        else open.push(path);
      }
    }
  }
  return names;
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  // Children are nodes or text: names of groups become text, never markup.
  made.append(...children);
  return made;
}
