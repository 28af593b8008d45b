// A data set: its columns, a query over it with the result as table and chart, and what can be
// done with the result: save, export.

import { errorText, get, permits, post, postForFile } from "../api.js";
import { data, download, fill, h, icon } from "../dom.js";
import { integer, plain, shortTime, withUnit } from "../format.js";
import { count, known, t } from "../i18n.js";
import { busy, button, formDialog, inputField } from "../parts/field.js";
import { empty, say, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { ResultChart } from "../parts/result_chart.js";
import { QueryBuilder } from "../query.js";
import { go, rewriteQuery } from "../router.js";
import { removeDataset } from "./data.js";

const FORMATS = ["csv", "json", "parquet"];
/** Longest state of the page in its address, in characters: servers and proxies bound addresses. */
const VIEW_MAX = 8000;

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

/**
 * What the builder and the chart were when the page was left or loaded again. The address has it,
 * so that a view can be sent to others; the entry of the history has what is too long for that.
 */
function stateOf(query) {
  const text = query.get("view") ?? history.state?.view;
  try {
    const value = JSON.parse(text ?? "{}");
    return value !== null && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

/** Keeps the state of builder and chart, unless the page was left. */
function keepState(state, signal) {
  if (!signal.aborted) {
    const view = JSON.stringify(state);
    const isShort = encodeURIComponent(view).length <= VIEW_MAX;
    rewriteQuery(new URLSearchParams(isShort ? { view } : {}), isShort ? null : { view });
  }
}

/** Shows the page. */
export async function render({ main, parts, query, signal }) {
  const [dataset, { datasets }] = await Promise.all([
    get(`/api/datasets/${parts[0]}`, { signal }),
    get("/api/datasets", { signal }),
  ]);
  const place = h("div");
  const note = h("p", { class: "soft small", role: "status" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const state = stateOf(query);
  const chart = new ResultChart({ name: dataset.name, signal, state: state.chart, changed: () => keep() });
  const builder = new QueryBuilder({
    source: dataset.id,
    columns: dataset.columns,
    datasets,
    changed: () => keep(),
    state: state.query,
  });
  const keep = () => keepState({ query: builder.state(), chart: chart.state() }, signal);
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
