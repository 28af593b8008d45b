// Running engines, nodes and servers: the figures of `farcore top`, every second, with the last
// two minutes as charts. Times are those of this page: an engine that starts again begins anew.

import { get, listen } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { span, withUnit } from "../format.js";
import { known, said, t } from "../i18n.js";
import { Chart, ChartGroup } from "../parts/chart.js";
import { empty } from "../parts/notice.js";
import { CHART_MIN, figures, head, pairs, panel, spread } from "../parts/page.js";

const KEPT_SECONDS = 120;
/** Shortest time that the charts show: at first there is less. */
const SHOWN_SECONDS_MIN = 15;
const HEADLINES = [
  ["operations_per_second", "1/s"],
  ["gets_per_second", "1/s"],
  ["puts_per_second", "1/s"],
  ["hit_ratio", "share"],
  ["far_share", "share"],
  ["far_bytes_per_second", "bytes/s"],
  ["pending", "exact"],
  ["keys", "count"],
  ["connections", "count"],
];
const LINES = [
  { key: "operations", unit: "1/s", lines: ["operations_per_second", "gets_per_second", "puts_per_second"] },
  { key: "shares", unit: "share", limits: [0, 1], lines: ["local_share", "cache_share", "far_share"] },
  { key: "far_latency", unit: "ns", lines: ["far.p50_ns", "far.p99_ns"] },
  { key: "traffic", unit: "1/s", lines: ["reads_per_second", "writes_per_second"] },
];
const CORE_COLUMNS = [
  ["operations_per_second", "1/s"],
  ["hit_ratio", "share"],
  ["local.p99_ns", "ns"],
  ["far.p99_ns", "ns"],
  ["busy_share", "share"],
  ["pending", "exact"],
  ["keys", "count"],
];
const LOADING = [["loaded_bytes", "bytes"], ["to_load_bytes", "bytes"], ["loaded_entries", "count"]];
const DATA = [
  ["log_bytes_per_second", "bytes/s"],
  ["unsynced_bytes", "bytes"],
  ["last_sync_ns", "ns"],
  ["last_snapshot_bytes", "bytes"],
  ["last_snapshot_keys", "count"],
  ["snapshots", "exact"],
  ["failed_snapshots", "exact"],
  ["repaired_keys", "count"],
  ["torn_bytes", "bytes"],
];
const LINK = [["behind_bytes", "bytes"], ["full_syncs", "exact"], ["partial_syncs", "exact"], ["failed_commands", "exact"]];
const LINK_LOADING = [["loaded_bytes", "bytes"], ["to_load_bytes", "bytes"]];
const REPLICAS = [
  ["replicas", "exact"],
  ["replicas_online", "exact"],
  ["replicas_behind_bytes", "bytes"],
  ["backlog_bytes", "bytes"],
  ["full_syncs", "exact"],
  ["partial_syncs", "exact"],
  ["refused_partial_syncs", "exact"],
  ["dropped_replicas", "exact"],
];
const CLUSTER = [["map_version", "exact"], ["servers", "exact"], ["slots", "exact"], ["held_slots", "exact"]];
const NODE_COLUMNS = [
  ["used_bytes", "bytes"],
  ["total_bytes", "bytes"],
  ["reads_per_second", "1/s"],
  ["writes_per_second", "1/s"],
  ["bytes_per_second", "bytes/s"],
  ["errors", "exact"],
];

function at(value, path) {
  return path.split(".").reduce((inner, name) => inner?.[name], value);
}

/** The name of a source in the language in use: only that of a memory node has a word in it. */
function named({ kind, name }) {
  const short = shortName(name);
  return kind === "node" ? said(short, 1) ?? short : short;
}

/** The name of a source without the folders of its socket. */
function shortName(name) {
  return name.replace(/\/\S*\//g, "");
}

/** The unit that the name of a figure ends with. */
function unitOf(name) {
  const units = [[/bytes_per_second$/, "bytes/s"], [/_per_second$/, "1/s"], [/_bytes$/, "bytes"], [/_ns$/, "ns"], [/_seconds$/, "seconds"], [/_(share|ratio)$/, "share"]];
  return units.find(([ending]) => ending.test(name))?.[1] ?? "exact";
}

function title(path) {
  return known(`live.${path}`, path);
}

function grid(caption, first, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: "hidden-text" }, caption),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, first), columns.map(([name]) => h("th", { scope: "col", class: "number" }, title(name))))),
      h("tbody", null, rows.map(([name, value]) => h(
        "tr",
        null,
        h("th", { scope: "row" }, data(name, "breaks")),
        columns.map(([path, unit]) => h("td", { class: "number", translate: "no" }, withUnit(at(value, path) ?? Number.NaN, unit))),
      ))),
    ),
  );
}

/** A time in seconds, or a dash. */
function age(seconds) {
  return typeof seconds === "number" ? span(seconds * 1000) : "–";
}

/** Those of some figures that there are, each with its name in a group. */
function listed(group, values, figuresOf) {
  return figuresOf
    .filter(([name]) => typeof values[name] === "number")
    .map(([name, unit]) => ({ label: title(`${group}.${name}`), value: values[name], unit }));
}

/** The view of an engine: it keeps its charts and draws the rest anew. */
class EngineView {
  constructor(signal) {
    const group = new ChartGroup();
    this.times = [];
    this.life = null;
    this.history = new Map(LINES.flatMap(({ lines }) => lines).map((name) => [name, []]));
    this.charts = LINES.map((line) => ({
      lines: line.lines,
      chart: new Chart({
        title: t(`live.chart.${line.key}`),
        unit: line.unit,
        limits: line.limits,
        x: { label: "seconds", unit: "seconds", limits: () => [-this.shownSeconds(), 0] },
        series: line.lines.map((name) => ({ label: title(name) })),
        group,
      }, signal),
    }));
    this.above = h("div", { class: "stack" });
    this.below = h("div", { class: "stack" });
    this.root = h("div", { class: "stack" }, this.above, spread(h("div", { class: "charts" }, this.charts.map(({ chart }) => chart.root)), CHART_MIN), this.below);
  }

  /** The time that the charts show: what there is, within limits. */
  shownSeconds() {
    const age = this.times.length > 0 ? this.times.at(-1) - this.times[0] : 0;
    return Math.min(Math.max(age, SHOWN_SECONDS_MIN), KEPT_SECONDS);
  }

  /** Forgets what an engine did before it was started again. */
  heed({ process, uptime_seconds: uptime }) {
    if (this.life !== null && (process !== this.life.process || uptime < this.life.uptime)) {
      this.times = [];
      this.history.forEach((list) => list.splice(0));
    }
    this.life = { process, uptime };
  }

  show(rates) {
    const total = rates.total ?? {};
    this.heed(rates);
    const now = performance.now() / 1000;
    this.times.push(now);
    for (const [name, list] of this.history) {
      list.push(at(total, name) ?? null);
    }
    while (now - this.times[0] > KEPT_SECONDS) {
      this.times.shift();
      this.history.forEach((list) => list.shift());
    }
    for (const { lines, chart } of this.charts) {
      chart.set([this.times.map((time) => time - this.times.at(-1)), ...lines.map((name) => [...this.history.get(name)])]);
    }
    const headlines = HEADLINES.map(([name, unit]) => ({ label: title(name), value: at(total, name) ?? Number.NaN, unit }));
    fill(this.above, figures(headlines));
    fill(this.below, this.cores(rates), this.nodes(rates), h("div", { class: "columns" }, this.memory(rates), this.dataDirectory(rates), this.link(rates), this.replicas(rates), this.cluster(rates), this.hotKeys(rates)));
  }

  cores({ cores = [] }) {
    const rows = cores.map((core) => [t("live.core", { number: String(core.core) }), core]);
    return cores.length > 0 && panel(t("live.cores"), grid(t("live.cores"), t("live.core_title"), CORE_COLUMNS, rows), { isFlush: true });
  }

  nodes({ nodes = [] }) {
    const rows = nodes.map((node) => [node.name, node]);
    return nodes.length > 0 && panel(t("live.nodes"), grid(t("live.nodes"), t("live.node_title"), NODE_COLUMNS, rows), { isFlush: true });
  }

  memory(rates) {
    const names = ["local_cap_bytes", "local_resident_bytes", "huge_bytes", "far_total_bytes", "far_used_bytes", "far_live_bytes", "far_dead_bytes"];
    const list = names.filter((name) => name in rates).map((name) => ({ label: title(name), value: rates[name], unit: "bytes" }));
    const about = [
      { label: title("version"), text: rates.version ?? "–" },
      { label: title("process"), text: String(rates.process ?? "–") },
      { label: title("uptime_seconds"), text: span((rates.uptime_seconds ?? 0) * 1000) },
    ];
    return panel(t("live.memory"), pairs([...list, ...about]));
  }

  dataDirectory({ data }) {
    if (!data) {
      return false;
    }
    const states = [["loading", data.is_loading], ["failing", data.is_failing], ["saving", data.is_saving], ["logging", data.is_logging]];
    const state = states.find(([, is]) => is)?.[0] ?? "unlogged";
    return panel(t("live.data"), pairs([
      { label: t("live.data.state"), text: t(`live.data.state.${state}`) },
      { label: t("live.data.age"), text: age(data.last_snapshot_age_seconds) },
      ...listed("data", data, data.is_loading ? LOADING : DATA),
    ]));
  }

  /** The link to the server that this one follows, if it follows one. */
  link({ replication }) {
    const link = replication?.link;
    if (!link) {
      return false;
    }
    const state = link.is_syncing ? "syncing" : link.is_up ? "up" : "down";
    const heard = link.is_up || link.is_syncing ? link.silent_seconds : link.down_seconds;
    return panel(t("live.link"), pairs([
      { label: t("live.link.state"), text: t(`live.link.state.${state}`) },
      { label: t(state === "down" ? "live.link.down" : "live.link.silent"), text: age(heard) },
      ...listed("link", link, link.is_syncing ? LINK_LOADING : LINK),
    ]));
  }

  /** The replicas of a server, if it has or had some. */
  replicas({ replication }) {
    if (!replication || replication.replicas + replication.full_syncs + replication.partial_syncs === 0) {
      return false;
    }
    return panel(t("live.replication"), pairs([
      ...listed("replication", replication, REPLICAS),
      { label: t("live.replication.silent"), text: age(replication.replicas_silent_seconds) },
    ]));
  }

  /** The map that a server of a cluster goes by. */
  cluster({ cluster }) {
    return Boolean(cluster) && panel(t("live.cluster"), pairs([
      { label: t("live.cluster.state"), text: t(`live.cluster.state.${cluster.is_serving ? "serving" : "stopped"}`) },
      ...listed("cluster", cluster, CLUSTER),
    ]));
  }

  hotKeys({ hot_keys: keys = [] }) {
    const list = keys.slice(0, 8).map(({ key, key_bytes: bytes, share }) => [
      `${key}`,
      { share, bytes },
    ]);
    const body = list.length > 0
      ? grid(t("live.hot_keys"), t("live.key"), [["share", "share"], ["bytes", "bytes"]], list)
      : h("p", { class: "panel-body soft" }, t("live.no_hot_keys"));
    return panel(t("live.hot_keys"), body, { isFlush: true });
  }
}

/** The view of any other source: its figures by name. */
class PlainView {
  constructor() {
    this.root = h("div", { class: "columns" });
  }

  show(rates) {
    const isGroup = (value) => value !== null && typeof value === "object";
    const list = (value) => pairs(Object.entries(value).filter(([, one]) => !isGroup(one)).map(([name, one]) => ({
      label: title(name),
      text: typeof one === "number" ? withUnit(one, unitOf(name)) : String(one),
    })));
    const groups = Object.entries(rates).filter(([, value]) => isGroup(value) && !Array.isArray(value));
    fill(this.root, panel(t("live.figures"), list(rates)), groups.map(([name, value]) => panel(title(name), list(value))));
  }
}

/** Shows the page. */
export async function render({ main, query, signal }) {
  let wanted = query.get("source");
  let view = null;
  let shownSource = null;
  let last = { sources: [] };
  const tabs = h("div", { class: "source-tabs", role: "group", "aria-label": t("live.sources"), data: { tour: "sources" } });
  const place = h("div");
  const choose = (name) => {
    wanted = name;
    show(last);
  };
  // A server is an engine until it has clients, so that its kind does not tell it from others.
  const identity = ({ name }) => name;
  const drawTabs = (sources, chosen) => fill(tabs, sources.map((source) => h(
    "button",
    { class: "button", type: "button", "aria-pressed": String(source === chosen), on: { click: () => choose(identity(source)) } },
    h("span", { translate: "no", title: source.name }, named(source)),
    h("span", { class: "soft small" }, known(`live.kind.${source.kind}`, source.kind)),
  )));
  let tabsText = "";
  function show(answer) {
    last = answer;
    const { sources } = answer;
    if (sources.length === 0) {
      view = null;
      shownSource = null;
      tabsText = "";
      fill(tabs);
      fill(place, h("div", { class: "panel" }, empty({ picture: "live", title: t("live.none"), text: t("live.none.text") })));
      return;
    }
    const chosen = sources.find((one) => identity(one) === wanted) ?? sources[0];
    const text = JSON.stringify([sources.map(identity), identity(chosen)]);
    if (text !== tabsText) {
      tabsText = text;
      drawTabs(sources, chosen);
    }
    if (!chosen.rates) {
      shownSource = null;
      fill(place, chosen.error
        ? h("div", { class: "notice warn" }, icon("warning"), h("p", { translate: "no" }, said(chosen.error) ?? chosen.error))
        : h("p", { class: "loading", role: "status" }, t("live.waiting")));
      return;
    }
    if (identity(chosen) !== shownSource) {
      shownSource = identity(chosen);
      view = chosen.rates.total ? new EngineView(signal) : new PlainView();
      fill(place, view.root);
    }
    view.show(chosen.rates);
  }
  const answer = await get("/api/live", { signal });
  fill(main, head(t("nav.live"), { lead: t("live.lead") }), tabs, place);
  show(answer);
  listen("/api/live/events", { on: { live: show } }, signal);
}
