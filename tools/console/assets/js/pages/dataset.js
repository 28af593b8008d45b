// A data set: its columns, a query over it with the result as table and chart, and what can be
// done with the result: save, export.

import { errorText, get, permits, post, postForFile } from "../api.js";
import { data, download, fill, h, icon } from "../dom.js";
import { integer, plain, shortTime, withUnit } from "../format.js";
import { count, known, t } from "../i18n.js";
import { Chart } from "../parts/chart.js";
import { busy, button, formDialog, inputField, selectField } from "../parts/field.js";
import { empty, say, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { QueryBuilder } from "../query.js";
import { go } from "../router.js";
import { removeDataset } from "./data.js";

const FORMATS = ["csv", "json", "parquet"];
const LINES_MAX = 5;

function cellOf(value) {
  if (value === null || value === undefined) {
    return h("span", { class: "soft" }, "–");
  }
  return typeof value === "number" ? plain(value) : String(value);
}

/** A result as a table that scrolls within itself. */
function resultTable(result, caption) {
  const isNumber = result.columns.map(({ type }) => type !== "text");
  return h(
    "div",
    { class: "data-table", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      { translate: "no" },
      h("thead", null, h("tr", null, result.columns.map(({ name, type }, index) => h(
        "th",
        { scope: "col", class: isNumber[index] ? "number" : null },
        name,
        h("span", { class: "type" }, known(`type.${type}`, type)),
      )))),
      h("tbody", null, result.rows.map((row) => h("tr", null, row.map((value, index) => h(
        "td",
        { class: isNumber[index] ? "number" : null, title: typeof value === "string" && value.length > 40 ? value : null },
        cellOf(value),
      ))))),
    ),
  );
}

/** The unit that the name of a column ends with. */
function unitOf(name) {
  const [, ending] = /_(ns|bytes)$/.exec(name) ?? [];
  return ending ?? null;
}

/** The chart of a result: one column across, up to five upwards. */
class ResultChart {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.leave = new AbortController();
    this.root = h("div");
    this.x = null;
    this.y = [];
    this.kind = "line";
  }

  show(result) {
    this.result = result;
    const numeric = result.columns.filter(({ type }) => type !== "text").map(({ name }) => name);
    if (!numeric.includes(this.x) && this.x !== "") {
      this.x = numeric.length > 1 ? numeric[0] : "";
    }
    this.y = this.y.filter((name) => numeric.includes(name));
    if (this.y.length === 0) {
      this.y = numeric.filter((name) => name !== this.x).slice(0, 1);
    }
    this.numeric = numeric;
    this.draw();
  }

  draw() {
    if (this.numeric.length === 0 || this.result.rows.length === 0) {
      fill(this.root, h("p", { class: "soft" }, t("result.no_chart")));
      return;
    }
    const again = (change) => (value) => {
      change(value);
      this.drawChart();
    };
    const across = selectField({
      label: t("result.across"),
      value: this.x,
      options: [["", t("result.row")], ...this.numeric.map((name) => [name, name])],
      change: again((value) => {
        this.x = value;
      }),
    });
    const kind = selectField({
      label: t("result.kind"),
      value: this.kind,
      options: ["line", "bars", "points"].map((one) => [one, t(`result.${one}`)]),
      change: again((value) => {
        this.kind = value;
      }),
    });
    const upwards = h("fieldset", null, h("legend", { class: "label" }, t("result.upwards")), h("div", { class: "choices", translate: "no" }, this.numeric.map((name) => h(
      "label",
      null,
      h("input", {
        type: "checkbox",
        checked: this.y.includes(name),
        on: { change: (event) => this.choose(name, event.target) },
      }),
      name,
    ))));
    this.place = h("div");
    fill(this.root, h("div", { class: "stack" }, h("div", { class: "fields" }, across.root, kind.root), upwards, this.place));
    this.drawChart();
  }

  choose(name, box) {
    if (box.checked && this.y.length >= LINES_MAX) {
      box.checked = false;
      say(t("result.lines_max", { count: String(LINES_MAX) }), { bad: true });
      return;
    }
    this.y = box.checked ? [...this.y, name] : this.y.filter((one) => one !== name);
    this.drawChart();
  }

  drawChart() {
    this.leave.abort();
    this.leave = new AbortController();
    const signal = AbortSignal.any([this.signal, this.leave.signal]);
    if (this.y.length === 0) {
      fill(this.place);
      return;
    }
    const index = (name) => this.result.columns.findIndex((one) => one.name === name);
    const at = this.x === "" ? (_, row) => row + 1 : (row) => row[index(this.x)];
    const rows = this.result.rows
      .map((row, place) => [at(row, place), ...this.y.map((name) => row[index(name)] ?? null)])
      .filter(([x]) => typeof x === "number")
      .sort(([one], [other]) => one - other);
    const chart = new Chart({
      title: this.x === "" ? this.name : t("result.over", { name: this.x }),
      file: this.name,
      kind: this.kind,
      unit: this.y.every((name) => unitOf(name) === unitOf(this.y[0])) ? unitOf(this.y[0]) : null,
      x: { label: this.x || t("result.row"), unit: unitOf(this.x) },
      series: this.y.map((name) => ({ label: name, isData: true })),
    }, signal);
    fill(this.place, chart.root);
    chart.set(rows.length > 0 ? rows[0].map((_, place) => rows.map((row) => row[place])) : [[], ...this.y.map(() => [])]);
  }
}

async function save(query) {
  const name = inputField({ label: t("dataset.name"), isRequired: true, attributes: { maxlength: "120", autocomplete: "off" } });
  let made = null;
  await formDialog({
    title: t("result.save"),
    text: t("result.save.text"),
    fields: [name.root],
    action: t("result.save.action"),
    explain: errorText,
    submit: async () => {
      made = await post("/api/query/save", { name: name.control.value.trim(), query });
    },
  });
  if (made) {
    await go(`/data/${made.id}`);
    say(t("result.saved"));
  }
}

async function exportTo(format, dataset, query) {
  const blob = await postForFile(`/api/query/export?format=${format}`, query);
  download(`${dataset.name.replace(/[^\p{L}\p{N}]+/gu, "-")}.${format}`, blob);
}

function description(dataset) {
  return h(
    "div",
    { class: "meta" },
    data(known(`format.${dataset.format}`, dataset.format)),
    h("span", null, count("dataset.row_count", dataset.rows, integer(dataset.rows))),
    data(withUnit(dataset.bytes, "bytes")),
    h("span", null, `${t("run.by")} `, data(dataset.by, "breaks")),
    data(shortTime(dataset.created_ms)),
  );
}

/** Shows the page. */
export async function render({ main, parts, signal }) {
  const [dataset, { datasets }] = await Promise.all([
    get(`/api/datasets/${parts[0]}`, { signal }),
    get("/api/datasets", { signal }),
  ]);
  const place = h("div");
  const note = h("p", { class: "soft small", role: "status" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const chart = new ResultChart(dataset.name, signal);
  const builder = new QueryBuilder({ source: dataset.id, columns: dataset.columns, datasets, changed: () => {} });
  const apply = button(t("query.run"), { kind: "primary", type: "submit" });
  const run = async () => {
    problem.hidden = true;
    try {
      const result = await busy(apply, () => post("/api/query", builder.query(), { signal }));
      note.textContent = result.more
        ? t("result.more", { count: integer(result.rows.length) })
        : count("dataset.row_count", result.rows.length, integer(result.rows.length));
      const none = empty({ picture: "table", title: t("result.none"), text: t("result.none.text") });
      fill(place, result.rows.length > 0 ? resultTable(result, t("result.title")) : none);
      chart.show(result);
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      if (!builder.setProblem(error.field?.replace(/^query\./, ""), errorText(error))) {
        problem.textContent = errorText(error);
        problem.hidden = false;
      }
    }
  };
  const form = h("form", { novalidate: true }, builder.root, problem, h("div", { class: "form-actions" }, apply));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    builder.draw();
    run();
  });
  const exports = FORMATS.map((format) => button(data(format.toUpperCase()), {
    kind: "compact",
    "aria-label": t("run.export", { format: format.toUpperCase() }),
    press: () => exportTo(format, dataset, builder.query({ isLimited: false })).catch(sayError),
  }, icon("download")));
  const saving = permits("operator") && button(t("result.save.action"), {
    kind: "compact",
    press: () => save(builder.query({ isLimited: false })).catch(sayError),
  });
  const erase = permits("operator") && button(t("delete"), {
    kind: "quiet",
    press: async () => {
      if (await removeDataset(dataset)) {
        await go("/data");
        say(t("dataset.deleted"));
      }
    },
  });
  const use = permits("operator") && dataset.format === "trace"
    && h("a", { class: "button", href: "/runs/new" }, t("runs.new"));
  fill(
    main,
    head(dataset.name, { isData: true, below: description(dataset), actions: [use, erase] }),
    h(
      "div",
      { class: "stack" },
      h("div", { class: "data-columns" },
        panel(t("query.title"), form),
        h("div", { class: "stack" },
          panel(t("result.title"), [place, h("div", { class: "panel-foot" }, note)], { isFlush: true, actions: [saving, exports] }),
          panel(t("result.chart"), chart.root))),
    ),
  );
  await run();
}
