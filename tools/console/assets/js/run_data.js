// What the pages know of runs: their states, the charts of a series, and the paths of settings.

import { get } from "./api.js";
import { h } from "./dom.js";
import { exactly, span } from "./format.js";
import { known, t } from "./i18n.js";

/** Most runs that are compared side by side. */
export const COMPARED_MAX = 4;

const KINDS = {
  queued: "",
  running: "active",
  done: "good",
  cancelled: "warn",
  failed: "bad",
  interrupted: "warn",
};

/** How much of a run's messages were started, 0 to 1. */
export function shareOf({ started, total }) {
  return total > 0 ? started / total : 0;
}

/** Time over which the pace of work is measured, and the least that says something. */
const PACE_MS = [1000, 10_000];

/** When work will be over, by its pace of the last seconds. */
export class Pace {
  constructor() {
    this.seen = [];
  }

  /** Notes a share of the work; gives the milliseconds that are left, null if it is too early. */
  left(share, now = performance.now()) {
    const [least, most] = PACE_MS;
    if (share < (this.seen.at(-1)?.share ?? 0)) {
      this.seen = [];
    }
    this.seen.push({ share, now });
    while (this.seen.length > 2 && now - this.seen[1].now > most) {
      this.seen.shift();
    }
    const [first] = this.seen;
    const done = share - first.share;
    return now - first.now < least || done <= 0 ? null : ((1 - share) / done) * (now - first.now);
  }

  /** The time that is left as a text; empty if it is too early. */
  leftText(share) {
    const left = this.left(share);
    return left === null ? "" : t("run.left", { time: span(left) });
  }
}

/** Whether a run in this state has ended. */
export function isEnded(state) {
  return state !== "queued" && state !== "running";
}

/** A state as a badge. */
export function stateBadge(state) {
  return h("span", { class: `badge ${KINDS[state] ?? ""}`, data: { state } }, known(`state.${state}`, state));
}

const VERDICTS = { steady: "good", warming: "warn", "too-short": "warn" };

/** Whether a run came to rest, as a badge; nothing without a verdict. */
export function verdictBadge(verdict) {
  return verdict in VERDICTS
    ? h("span", { class: `badge ${VERDICTS[verdict]}`, data: { verdict } }, known(`verdict.${verdict}`, verdict))
    : null;
}

/** The badges of a run in a list. */
export function stateBadges(run) {
  return h("span", { class: "badges" }, stateBadge(run.state), verdictBadge(run.summary?.verdict));
}

/** Every chart of a series: its lines are columns. */
export const CHARTS = [
  {
    key: "hits",
    unit: "share",
    limits: [0, 1],
    lines: ["card_share", "staging_share", "cxl_share", "host_share", "migrating_share"],
    isStacked: true,
  },
  { key: "latency", unit: "ns", lines: ["p50_ns", "p99_ns", "p999_ns"] },
  { key: "rate", unit: "1/s", lines: ["messages_s"] },
  { key: "migrations", unit: "count", lines: ["migrations"] },
  { key: "moves", unit: "ns", lines: ["migration_p50_ns", "migration_p99_ns"] },
  { key: "thresholds", unit: "count", lines: ["to_cxl", "to_card"] },
  { key: "load", unit: "share", limits: [0, 1], lines: ["cxl_load", "host_load"] },
  { key: "occupancy", unit: "count", lines: ["card_tokens", "staging_tokens", "cxl_tokens"] },
];

/** The figures of an outcome that lists and comparisons show; `better` says which way. */
export const FIGURES = [
  { key: "messages_s", unit: "1/s", better: "more" },
  { key: "hit_ratio", unit: "share", better: "more" },
  { key: "p50_ns", unit: "ns", better: "less" },
  { key: "p99_ns", unit: "ns", better: "less" },
  { key: "p999_ns", unit: "ns", better: "less" },
  { key: "cxl_load", unit: "share" },
  { key: "host_load", unit: "share" },
  { key: "migrations", unit: "count" },
];

/** The title of a column of a series or a figure. */
export function columnTitle(name) {
  return known(`column.${name}`, name);
}

/** A setting's name for people. */
export function settingTitle(path) {
  return known(`field.${path}`, path);
}

let units = null;

/** Units of settings by path, as the form of the server has them; empty if it does not answer. */
export async function settingUnits() {
  units ??= get("/api/form").then(({ fields }) => new Map(fields.map(({ path, unit }) => [path, unit])));
  try {
    return await units;
  } catch {
    units = null;
    return new Map();
  }
}

/** The value of a setting with its unit. `of` are the units by path. */
export function settingText(path, value, of) {
  if (value === undefined) {
    return "–";
  }
  return typeof value === "number" ? exactly(value, of.get(path)) : known(`choice.${value}`, String(value));
}

/** Nested settings as pairs of path and value. */
export function flatten(value, prefix = "") {
  if (value === null || typeof value !== "object") {
    return [[prefix, value]];
  }
  return Object.entries(value).flatMap(([name, inner]) => {
    return flatten(inner, prefix ? `${prefix}.${name}` : name);
  });
}

/** Pairs of path and value as nested settings. */
export function nest(list) {
  const root = {};
  for (const [path, value] of list) {
    const parts = path.split(".");
    let inner = root;
    for (const part of parts.slice(0, -1)) {
      inner[part] ??= {};
      inner = inner[part];
    }
    inner[parts.at(-1)] = value;
  }
  return root;
}

/** A figure of a run's summary or outcome. */
export function figureOf(run, key) {
  const from = run.outcome ?? run.summary ?? {};
  if (key === "migrations" && from.migrations === undefined && from.statistics) {
    const { migration } = from.statistics;
    const moves = ["to_card", "card_to_cxl", "card_to_host", "host_to_cxl", "cxl_to_host"];
    return moves.reduce((sum, name) => sum + (migration[name] ?? 0), 0);
  }
  return from[key];
}

/** A column of a series as a list of numbers. */
export function column(series, name) {
  const index = series.columns.findIndex((one) => one.name === name);
  return index < 0 ? null : series.rows.map((row) => row[index]);
}

/** The title of a chart. */
export function chartTitle(key) {
  return t(`chart.${key}`);
}
