// A run: its state and progress, live while it runs, its figures, charts, counts and settings, and
// what can be done with it.

import { errorText, get, listen, permits, post, remove } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { plain, span, time, withUnit } from "../format.js";
import { known, said, t } from "../i18n.js";
import { Chart, ChartGroup } from "../parts/chart.js";
import { button, formDialog, inputField } from "../parts/field.js";
import { say, sayError } from "../parts/notice.js";
import { CHART_MIN, figures, head, pairs, panel, spread } from "../parts/page.js";
import { go } from "../router.js";
import {
  CHARTS, FIGURES, chartTitle, column, columnTitle, figureOf, flatten, isEnded, settingText, settingTitle, settingUnits,
  shareOf, stateBadge, verdictBadge, Pace,
} from "../run_data.js";

const FORMATS = ["csv", "json", "parquet"];
const LATENCIES = ["latency", "batch_latency", "expand_latency", "migration_latency"];
const PERCENTILES = [
  ["count", "exact"],
  ["mean_ns", "ns"],
  ["p50_ns", "ns"],
  ["p90_ns", "ns"],
  ["p99_ns", "ns"],
  ["p999_ns", "ns"],
  ["max_ns", "ns"],
];
/** Narrowest column of counts and settings, with the gap beside it, in pixels. */
const COLUMN_MIN = 300;
const SECTIONS = ["served", "hot", "staging", "batch", "expand", "migration"];

/** The charts of a run. */
class Charts {
  constructor(run, series, signal) {
    const group = new ChartGroup();
    this.series = series;
    this.isWaiting = false;
    this.list = CHARTS.map((chart) => ({ ...chart, lines: chart.lines.filter((name) => column(series, name)) }))
      .filter((chart) => chart.lines.length > 0)
      .map((chart) => ({
        lines: chart.lines,
        chart: new Chart({
          title: chartTitle(chart.key),
          file: `${run.name}-${chart.key}`,
          unit: chart.unit,
          limits: chart.limits,
          isStacked: chart.isStacked,
          x: { label: "at_ns", unit: "ns" },
          series: chart.lines.map((name) => ({ label: columnTitle(name) })),
          group,
        }, signal),
      }));
    const shown = this.list.map(({ chart }) => chart.root);
    this.root = spread(h("div", { class: "charts", data: { tour: "charts" } }, shown), CHART_MIN);
    this.show();
  }

  show() {
    const times = column(this.series, "at_ns") ?? [];
    for (const { lines, chart } of this.list) {
      chart.set([times, ...lines.map((name) => column(this.series, name))]);
    }
  }

  /** Forgets all rows: the series begins again. */
  restart() {
    this.series.rows = [];
  }

  /** Adds a row of the series; what came in one frame is drawn at once. */
  add(row) {
    this.series.rows.push(row);
    if (!this.isWaiting) {
      this.isWaiting = true;
      requestAnimationFrame(() => {
        this.isWaiting = false;
        this.show();
      });
    }
  }
}

/** Of which part the figures are. */
function verdictText(run) {
  const { verdict, steady_since_ns: since } = run.outcome;
  const text = known(`verdict.${verdict}.text`, null);
  return text && h("p", { class: "soft" }, t(`verdict.${verdict}.text`, { since: withUnit(since, "ns") }));
}

function figuresOf(run) {
  const list = FIGURES.map(({ key, unit }) => ({ label: columnTitle(key), value: figureOf(run, key), unit }));
  return figures(list);
}

function sections(run) {
  const statistics = run.outcome?.statistics;
  if (!statistics) {
    return null;
  }
  const served = statistics.served ?? {};
  const total = Object.values(served).reduce((sum, one) => sum + one, 0);
  const body = SECTIONS.filter((name) => statistics[name]).map((name) => h(
    "div",
    null,
    h("h3", null, t(`statistics.${name}`)),
    pairs(Object.entries(statistics[name]).map(([key, value]) => ({
      label: known(`statistics.${name}.${key}`, key),
      text: name === "served" && total > 0
        ? `${plain(value)} · ${withUnit(value / total, "share")}`
        : plain(value),
    }))),
  ));
  return panel(t("run.statistics"), spread(h("div", { class: "statistics" }, body), COLUMN_MIN));
}

/** Percentiles of latency: of messages, and of misses by where they were fetched. */
function latencies(run) {
  const statistics = run.outcome?.statistics ?? {};
  const rows = LATENCIES.filter((name) => statistics[name]?.count > 0);
  if (rows.length === 0) {
    return null;
  }
  const title = t("run.latencies");
  return panel(title, h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": title },
    h(
      "table",
      null,
      h("caption", { class: "hidden-text" }, title),
      h("thead", null, h(
        "tr",
        null,
        h("th", { scope: "col" }, t("run.latency_of")),
        PERCENTILES.map(([name]) => h("th", { scope: "col", class: "number" }, t(`percentile.${name}`))),
      )),
      h("tbody", null, rows.map((name) => h(
        "tr",
        null,
        h("th", { scope: "row" }, t(`statistics.${name}`)),
        PERCENTILES.map(([key, unit]) => h("td", { class: "number", translate: "no" }, withUnit(statistics[name][key], unit))),
      ))),
    ),
  ), { isFlush: true });
}

function settings(run, units) {
  const list = flatten(run.settings).map(([path, value]) => ({
    label: settingTitle(path),
    text: settingText(path, value, units),
  }));
  const columns = 3;
  const size = Math.ceil(list.length / columns);
  const parts = Array.from({ length: columns }, (_, index) => list.slice(index * size, (index + 1) * size));
  return h(
    "details",
    { class: "panel group" },
    h("summary", null, h("h2", null, t("run.settings"))),
    spread(h("div", { class: "panel-body statistics" }, parts.map((part) => pairs(part))), COLUMN_MIN),
  );
}

function meta(run) {
  const duration = run.started_ms && (run.ended_ms ?? Date.now()) - run.started_ms;
  const entries = [
    [t("run.by"), run.by],
    [t("run.created"), time(run.created_ms)],
    duration && [t("run.duration"), span(duration)],
    run.outcome?.virtual_ns && [t("run.virtual"), withUnit(run.outcome.virtual_ns, "ns")],
  ].filter(Boolean);
  return h(
    "div",
    { class: "meta" },
    stateBadge(run.state),
    verdictBadge(run.outcome?.verdict),
    entries.map(([label, text]) => h("span", null, `${label} `, data(text, "breaks"))),
  );
}

async function makeDataset(run) {
  const name = inputField({ label: t("dataset.name"), isRequired: true, value: run.name.slice(0, 120), attributes: { maxlength: "120" } });
  let made = null;
  await formDialog({
    title: t("run.make_dataset"),
    text: t("run.make_dataset.text"),
    fields: [name.root],
    action: t("run.make_dataset.action"),
    explain: errorText,
    submit: async () => {
      made = await post(`/api/runs/${run.id}/dataset`, { name: name.control.value });
    },
  });
  if (made) {
    await go(`/data/${made.id}`);
  }
}

async function removeRun(run) {
  let isGone = false;
  await formDialog({
    title: t("run.delete"),
    text: t("run.delete.text"),
    fields: [h("p", { class: "breaks" }, data(run.name))],
    action: t("delete"),
    danger: true,
    explain: errorText,
    submit: async () => {
      await remove(`/api/runs/${run.id}`);
      isGone = true;
    },
  });
  if (isGone) {
    await go("/runs");
    say(t("run.deleted"));
  }
}

function exports(run) {
  return FORMATS.map((format) => h(
    "a",
    {
      class: "button compact",
      href: `/api/runs/${run.id}/export?format=${format}`,
      download: "",
      "aria-label": t("run.export", { format: format.toUpperCase() }),
    },
    icon("download"),
    data(format.toUpperCase()),
  ));
}

function actions(run) {
  const ended = isEnded(run.state);
  const may = permits("operator");
  const cancel = () => post(`/api/runs/${run.id}/cancel`, {}).then(() => say(t("run.cancel_sent")), sayError);
  return [
    may && !ended && button(t("run.cancel"), { kind: "danger", press: cancel }),
    may && h("a", { class: "button", href: `/runs/new?clone=${run.id}` }, t("run.clone")),
    h("a", { class: "button", href: `/compare?runs=${run.id}` }, icon("compare"), t("runs.compare")),
    may && ended && button(t("run.make_dataset"), { press: () => makeDataset(run).catch(sayError) }),
    may && ended && button(t("delete"), { kind: "quiet", press: () => removeRun(run).catch(sayError) }),
  ].filter(Boolean);
}

function progressPanel(run) {
  const bar = h("progress", { value: shareOf(run.progress), max: "1", "aria-label": t("run.progress") });
  const text = data(withUnit(shareOf(run.progress), "share"));
  const left = h("span", { class: "soft" });
  const pace = new Pace();
  const root = h(
    "div",
    { class: "panel panel-body" },
    h(
      "p",
      { class: "progress-words" },
      h("span", { class: "soft" }, t(run.state === "queued" ? "run.waits" : "run.runs")),
      left,
    ),
    h("div", { class: "progress-line" }, bar, text),
  );
  return {
    root,
    set(share) {
      bar.value = share;
      text.textContent = withUnit(share, "share");
      left.textContent = pace.leftText(share);
    },
  };
}

/** Follows a run until it ends. */
function follow({ run, charts, progress, signal, reload }) {
  listen(`/api/runs/${run.id}/events`, {
    restart: () => charts.restart(),
    on: {
      progress: ({ point, ...numbers }) => {
        progress.set(shareOf(numbers));
        if (point !== null) {
          charts.add(point);
        }
      },
      state: ({ state }, close) => {
        if (isEnded(state)) {
          close();
          reload();
        } else if (state !== run.state) {
          run.state = state;
          reload();
        }
      },
    },
  }, signal);
}

/** Shows the page. */
export async function render({ main, parts, signal, reload }) {
  const [id] = parts;
  const [run, series, units] = await Promise.all([
    get(`/api/runs/${id}`, { signal }),
    get(`/api/runs/${id}/series`, { signal }),
    settingUnits(),
  ]);
  const isOver = isEnded(run.state);
  if (!isOver) {
    // The events of a run begin with its first point.
    series.rows = [];
  }
  const charts = new Charts(run, series, signal);
  const progress = isOver ? null : progressPanel(run);
  fill(
    main,
    head(run.name, { isData: true, below: meta(run), actions: actions(run) }),
    h(
      "div",
      { class: "stack" },
      run.error && h("div", { class: "notice bad" }, icon("warning"), h("p", { translate: "no" }, said(run.error) ?? run.error)),
      progress?.root,
      run.outcome && [verdictText(run), figuresOf(run)],
      h(
        "div",
        { class: "head" },
        h("div", { class: "head-text" }, h("h2", null, t("run.charts")), h("p", { class: "soft" }, t("chart.how"))),
        series.rows.length > 0 && h("div", { class: "actions" }, exports(run)),
      ),
      charts.root,
      latencies(run),
      sections(run),
      settings(run, units),
      h("p", null, h("a", { href: `/logs?run=${run.id}` }, t("run.logs"))),
    ),
  );
  if (!isOver) {
    follow({ run, charts, progress, signal, reload });
  }
}
