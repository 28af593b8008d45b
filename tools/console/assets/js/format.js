// Figures with their units, and times, in the language in use. A figure is a number and a unit
// apart, so that pages can set the unit smaller. No-break spaces keep both together.

import { currentLanguage, known, t } from "./i18n.js";

const NONE = "–";
const GAP = "\u00a0";
const SI = ["", "k", "M", "G", "T", "P"];
/** Longest span that is said in hours. */
const HOURS_MAX = 48;
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function shown(value, digits) {
  return new Intl.NumberFormat(currentLanguage(), {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(value);
}

/** Three significant digits, as far as the number has them. */
function three(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  return shown(value, digits);
}

function scaled(value, step, names) {
  let index = 0;
  let size = value;
  while (Math.abs(size) >= step * 0.9995 && index < names.length - 1) {
    size /= step;
    index += 1;
  }
  return [three(size), names[index]];
}

/** A whole number with groups of digits. */
export function integer(value) {
  return Number.isFinite(value) ? shown(value, 0) : NONE;
}

/** Any number as precisely as it is useful. */
export function plain(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    return NONE;
  }
  if (Number.isInteger(value)) {
    return shown(value, 0);
  }
  return new Intl.NumberFormat(currentLanguage(), { maximumSignificantDigits: 6 }).format(value);
}

function nanoseconds(value) {
  for (const [factor, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (Math.abs(value) >= factor * 0.9995) {
      return [three(value / factor), name];
    }
  }
  return [three(value), "ns"];
}

/**
 * Number and unit of a value. Units are those of the server: `ns`, `bytes`, `bytes/s`, `1/s`,
 * `share` (0 to 1), `seconds`, or any other word, which has a text `unit.WORD`.
 */
export function figure(value, unit) {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    return [NONE, ""];
  }
  switch (unit) {
    case "ns":
      return nanoseconds(value);
    case "seconds":
      return value === 0 ? [shown(0, 0), "s"] : nanoseconds(value * 1e9);
    case "bytes":
      return scaled(value, 1024, BINARY);
    case "bytes/s": {
      const [number, prefix] = scaled(value, 1000, SI);
      return [number, `${prefix}B/s`];
    }
    case "1/s":
    case "messages/s": {
      const [number, prefix] = scaled(value, 1000, SI);
      return [number, `${prefix}/s`];
    }
    case "share":
      return [shown(value * 100, value !== 0 && Math.abs(value) < 0.1 ? 2 : 1), "%"];
    case "exact":
      return [integer(value), ""];
    default:
      return scaled(value, 1000, SI);
  }
}

/** Scales of the units that settings have, largest first. */
const SCALES = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  "bytes/s": [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]],
  "messages/s": [[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]],
};
/** Most decimals of a scaled setting. */
const DECIMALS_MAX = 3;

/** A setting with its unit and all its digits: the largest scale with few decimals. */
export function exactly(value, unit) {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    return NONE;
  }
  if (unit === "share") {
    return `${plain(value * 100)}${GAP}%`;
  }
  for (const [factor, name] of SCALES[unit] ?? []) {
    const size = value / factor;
    if (size >= 1 && Number(size.toFixed(DECIMALS_MAX)) === size) {
      return `${plain(size)}${GAP}${name}`;
    }
  }
  const name = known(`unit.${unit}`, null);
  return name ? `${plain(value)}${GAP}${name}` : plain(value);
}

/** A figure as one text. */
export function withUnit(value, unit) {
  const [number, name] = figure(value, unit);
  return name ? `${number}${GAP}${name}` : number;
}

/** A ratio as a multiple, with three digits at most. */
export function times(ratio) {
  const digits = { maximumSignificantDigits: 3 };
  return `×${GAP}${new Intl.NumberFormat(currentLanguage(), digits).format(ratio)}`;
}

/**
 * A figure at a tick of an axis: no digits that all ticks share. Both languages write a point before
 * decimals, and a comma between groups of digits, which stay.
 */
export function tickText(value, unit) {
  return withUnit(value, unit).replace(/(\.\d*?)0+(?=\D|$)/, (_, digits) => (digits.length > 1 ? digits : ""));
}

/** A limit of a number, short where that is exact, and never beyond it. */
export function limitText(value) {
  const short = fieldText(value);
  if (value < 1e6 || value < 1e10 && short === String(value)) {
    return plain(value);
  }
  const digits = Math.floor(Math.log10(value));
  return short === String(value) ? `${Math.floor(value / 10 ** digits)}e${digits}` : short;
}

/** A number as a field shows it: `2M` rather than `2000000`, always exactly. */
export function fieldText(value) {
  for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    const short = String(value / factor);
    if (value >= factor && short.length <= 5 && parseNumber(short + prefix) === value) {
      return short + prefix;
    }
  }
  return String(value);
}

/** Date and time of day. */
export function time(milliseconds) {
  return new Intl.DateTimeFormat(currentLanguage(), {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  }).format(milliseconds);
}

/** A date, or the time of day if it is of the last day. */
export function shortTime(milliseconds) {
  const isRecent = Date.now() - milliseconds < 86_400_000;
  const parts = isRecent
    ? { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }
    : { year: "numeric", month: "short", day: "numeric" };
  return new Intl.DateTimeFormat(currentLanguage(), parts).format(milliseconds);
}

/** A span of time in two units, from seconds to days. */
export function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 60) {
    return `${shown(seconds, seconds < 10 ? 1 : 0)}${GAP}${t("unit.seconds")}`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return `${minutes}${GAP}${t("unit.minutes")} ${Math.floor(seconds % 60)}${GAP}${t("unit.seconds")}`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < HOURS_MAX) {
    return `${hours}${GAP}${t("unit.hours")} ${minutes % 60}${GAP}${t("unit.minutes")}`;
  }
  return `${integer(Math.floor(hours / 24))}${GAP}${t("unit.days")} ${hours % 24}${GAP}${t("unit.hours")}`;
}

/**
 * The number that a user wrote: `4096`, `4_096`, `1e8`, `100M`, `64k`. NaN if it is none.
 */
export function parseNumber(text) {
  const match = /^([+-]?[\d_ ,]*\.?\d+(?:e[+-]?\d+)?)\s*([kKMGT]?)$/.exec(text.trim());
  if (!match) {
    return Number.NaN;
  }
  const factor = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12 }[match[2]] ?? 1;
  const value = Number(match[1].replace(/[_ ,]/g, "")) * factor;
  return match[2] ? Number(value.toPrecision(15)) : value;
}
