// Up to four runs side by side: charts of one figure with a line a run, a table of figures, and
// the settings in which the runs differ.

import { get } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { shortTime, times, withUnit } from "../format.js";
import { t } from "../i18n.js";
import { Chart, ChartGroup } from "../parts/chart.js";
import { button, selectField } from "../parts/field.js";
import { empty } from "../parts/notice.js";
import { CHART_MIN, head, panel, spread } from "../parts/page.js";
import { go } from "../router.js";
import {
  CHARTS, COMPARED_MAX, FIGURES, column, columnTitle, figureOf, flatten, settingText, settingTitle, settingUnits,
  stateBadge, verdictBadge,
} from "../run_data.js";

const COMPARED = CHARTS.flatMap(({ lines, ...chart }) => {
  const chosen = { hits: ["hit_ratio"], latency: ["p50_ns", "p99_ns"], load: ["cxl_load", "host_load"], occupancy: ["card_tokens"] };
  return (chosen[chart.key] ?? lines).map((name) => ({ ...chart, name }));
});

function key(run, index) {
  return h("span", { class: "run-key" }, h("span", { class: `swatch series-${index + 1}` }), data(run.name, "breaks"));
}

/**
 * The rows of several series on one axis: a value of a run stands at its own times, and the line
 * spans the times of the others.
 */
function joined(list, name) {
  const tables = list.map((series) => {
    const times = column(series, "at_ns") ?? [];
    return [times, column(series, name) ?? times.map(() => null)];
  });
  return window.uPlot.join(tables, tables.map(() => [0, 2]));
}

function charts(runs, series, signal) {
  const group = new ChartGroup();
  const made = COMPARED.filter(({ name }) => series.some((one) => column(one, name))).map(({ name, unit }) => {
    const chart = new Chart({
      title: columnTitle(name),
      file: `compare-${name}`,
      unit,
      isFitted: true,
      x: { label: "at_ns", unit: "ns" },
      series: runs.map((run, index) => ({ label: run.name, isData: true, dash: index })),
      group,
    }, signal);
    chart.ready.then(() => chart.set(joined(series, name)), () => {});
    return chart;
  });
  return spread(h("div", { class: "charts" }, made.map(({ root }) => root)), CHART_MIN);
}

/** The best value of a figure, if one is better than another. */
function bestOf(values, better) {
  const known = values.filter((value) => typeof value === "number");
  if (!better || new Set(known).size < 2) {
    return null;
  }
  return better === "more" ? Math.max(...known) : Math.min(...known);
}

/** Ratios beyond these are said as a multiple: a percentage of them says little. */
const RATIO_MIN = 0.5;
const RATIO_MAX = 2;

/** How a value differs from that of the baseline: shares in points, others in percent or times. */
function delta(value, base, unit) {
  if (typeof value !== "number" || typeof base !== "number" || value === base) {
    return null;
  }
  const sign = value >= base ? "+" : "−";
  const text = unit === "share"
    ? t("compare.points", { difference: `${sign}${withUnit(Math.abs(value - base), "share").replace(/\s*%$/, "")}` })
    : ratioText(value, base, sign);
  return text && h("span", { class: "delta" }, text);
}

function ratioText(value, base, sign) {
  if (base === 0) {
    return null;
  }
  const ratio = value / base;
  return ratio < RATIO_MIN || ratio > RATIO_MAX ? times(ratio) : `${sign}${withUnit(Math.abs(ratio - 1), "share")}`;
}

function figureTable(runs, baseline) {
  const rows = FIGURES.map(({ key: name, unit, better }) => {
    const values = runs.map((run) => figureOf(run, name));
    const best = bestOf(values, better);
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, columnTitle(name)),
      values.map((value, index) => h(
        "td",
        { class: value === best && best !== null ? "number best" : "number", translate: "no" },
        withUnit(value ?? Number.NaN, unit),
        index !== baseline && delta(value, values[baseline], unit),
      )),
    );
  });
  const course = h(
    "tr",
    null,
    h("th", { scope: "row" }, t("compare.course")),
    runs.map((run) => h("td", { class: "number" }, verdictBadge(run.outcome?.verdict) ?? "–")),
  );
  return compareTable(t("compare.figures"), runs, [course, ...rows], baseline);
}

/** The select of the run that the others differ from. */
function baselineField(runs, baseline) {
  return selectField({
    label: t("compare.baseline"),
    className: "inline",
    value: String(runs[baseline].id),
    options: runs.map(({ id, name }) => [String(id), name]),
    change: (id) => go(`/compare?runs=${runs.map((run) => run.id).join(",")}&to=${id}`),
  }).root;
}

function compareTable(caption, runs, rows, baseline = null) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      { class: "compare-table" },
      h("caption", { class: "hidden-text" }, caption),
      h("thead", null, h(
        "tr",
        null,
        h("th", { scope: "col" }, h("span", { class: "hidden-text" }, t("compare.what"))),
        runs.map((run, index) => h(
          "th",
          { scope: "col", class: "number" },
          key(run, index),
          index === baseline && h("span", { class: "delta" }, t("compare.is_baseline")),
        )),
      )),
      h("tbody", null, rows),
    ),
  );
}

function settingRows(runs, units, isAll) {
  const tables = runs.map((run) => new Map(flatten(run.settings)));
  const paths = [...new Set(tables.flatMap((one) => [...one.keys()]))];
  return paths
    .map((path) => [path, tables.map((one) => one.get(path))])
    .filter(([, values]) => isAll || new Set(values).size > 1)
    .map(([path, values]) => h(
      "tr",
      null,
      h("th", { scope: "row" }, settingTitle(path)),
      values.map((value) => h("td", { class: "number", translate: "no" }, settingText(path, value, units))),
    ));
}

function settings(runs, units) {
  const place = h("div");
  let isAll = false;
  const toggle = button("", {
    kind: "compact",
    press: () => {
      isAll = !isAll;
      draw();
    },
  });
  function draw() {
    const rows = settingRows(runs, units, isAll);
    toggle.textContent = t(isAll ? "compare.only_different" : "compare.all_settings");
    const none = h("p", { class: "panel-body soft" }, t("compare.same"));
    fill(place, rows.length > 0 ? compareTable(t("compare.settings"), runs, rows) : none);
  }
  draw();
  return panel(t("compare.settings"), place, { isFlush: true, actions: toggle });
}

function picker(all, chosen) {
  const change = (id, isChosen) => {
    const ids = isChosen ? [...chosen, id] : chosen.filter((one) => one !== id);
    return go(ids.length > 0 ? `/compare?runs=${ids.join(",")}` : "/compare");
  };
  const rows = all.filter(({ state }) => state !== "queued").slice(0, 30).map((run) => {
    const isChosen = chosen.includes(run.id);
    return h("label", null, h("input", {
      type: "checkbox",
      checked: isChosen,
      disabled: !isChosen && chosen.length >= COMPARED_MAX,
      data: { run: run.id },
      on: { change: (event) => change(run.id, event.target.checked) },
    }), data(run.name, "breaks"), data(shortTime(run.created_ms), "soft small nowrap"), stateBadge(run.state));
  });
  return h(
    "details",
    { class: "panel group", open: chosen.length < 2, data: { tour: "compare" } },
    h("summary", null, h("h2", null, t("compare.choose")), h("span", { class: "hint" }, t("compare.choose.text"))),
    h("div", { class: "panel-body picker" }, rows),
  );
}

/** A run with its series; nothing if it was deleted. */
async function wholeRun(id, signal) {
  try {
    return await Promise.all([get(`/api/runs/${id}`, { signal }), get(`/api/runs/${id}/series`, { signal })]);
  } catch (error) {
    if (error.status === 404) {
      return null;
    }
    throw error;
  }
}

/** Shows the page. The oldest run is the baseline, unless the address names another. */
export async function render({ main, query, signal }) {
  const ids = (query.get("runs") ?? "").split(",").filter((id) => /^\d{1,15}$/.test(id)).map(Number);
  const wanted = [...new Set(ids)].slice(0, COMPARED_MAX).sort((one, other) => one - other);
  const [{ runs: all }, units, ...found] = await Promise.all([
    get("/api/runs?limit=100", { signal }),
    settingUnits(),
    ...wanted.map((id) => wholeRun(id, signal)),
  ]);
  const there = found.filter((one) => one !== null);
  const runs = there.map(([run]) => run);
  const series = there.map(([, one]) => one);
  const chosen = runs.map(({ id }) => id);
  const baseline = Math.max(0, chosen.indexOf(Number(query.get("to"))));
  const heading = head(t("nav.compare"), { lead: t("compare.lead") });
  if (all.length === 0) {
    const create = h("a", { class: "button", href: "/runs" }, icon("runs"), t("nav.runs"));
    fill(main, heading, h("div", { class: "panel" }, empty({
      picture: "compare",
      title: t("compare.none"),
      text: t("compare.none.text"),
      actions: [create],
    })));
    return;
  }
  fill(main, heading, h(
    "div",
    { class: "stack" },
    found.length > there.length && h("div", { class: "notice warn", role: "status" }, icon("warning"), h("p", null, t("compare.gone"))),
    picker(all, chosen),
    runs.length > 0 && [
      panel(t("compare.figures"), figureTable(runs, baseline), {
        isFlush: true,
        actions: runs.length > 1 && baselineField(runs, baseline),
      }),
      settings(runs, units),
      charts(runs, series, signal),
    ],
  ));
}
