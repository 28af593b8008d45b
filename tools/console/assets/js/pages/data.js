// Data sets: import of files with progress, and the list of what is there.

import { errorText, get, permits, remove, upload } from "../api.js";
import { data, fill, h } from "../dom.js";
import { integer, shortTime, withUnit } from "../format.js";
import { known, t } from "../i18n.js";
import { button, field, formDialog, inputField, selectField } from "../parts/field.js";
import { empty, say, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";
import { go } from "../router.js";

/** Formats of files; `auto` is what the first bytes of a file say. */
const FORMATS = ["auto", "csv", "json", "parquet", "trace"];

/** Asks before a data set is deleted; true if it was. */
export async function removeDataset(one) {
  let isGone = false;
  await formDialog({
    title: t("dataset.delete"),
    text: t("dataset.delete.text"),
    fields: [h("p", { class: "breaks" }, data(one.name))],
    action: t("delete"),
    danger: true,
    explain: errorText,
    submit: async () => {
      await remove(`/api/datasets/${one.id}`);
      isGone = true;
    },
  });
  return isGone;
}

function list(datasets, reload) {
  const erase = async (one) => {
    if (await removeDataset(one)) {
      await reload();
      say(t("dataset.deleted"));
    }
  };
  const columns = [
    {
      title: t("dataset.name"),
      isTitle: true,
      cell: (one) => h("a", { class: "table-link", href: `/data/${one.id}` }, data(one.name)),
    },
    { title: t("dataset.format"), cell: (one) => known(`format.${one.format}`, one.format) },
    { title: t("dataset.rows"), isNumber: true, cell: (one) => data(integer(one.rows)) },
    { title: t("dataset.columns"), isNumber: true, cell: (one) => data(integer(one.columns.length)) },
    { title: t("dataset.bytes"), isNumber: true, cell: (one) => data(withUnit(one.bytes, "bytes")) },
    { title: t("run.by"), cell: (one) => data(one.by, "breaks") },
    { title: t("dataset.created"), isNumber: true, cell: (one) => data(shortTime(one.created_ms)) },
    permits("operator") && {
      title: t("delete"),
      hideTitle: true,
      className: "row-end",
      cell: (one) => h("div", { class: "row-actions" }, button(t("delete"), {
        kind: "quiet compact",
        press: () => erase(one).catch(sayError),
      })),
    },
  ].filter(Boolean);
  return table({ caption: t("nav.data"), className: "dense", columns, rows: datasets }).root;
}

function importPanel(signal) {
  const file = field({
    label: t("import.file"),
    isRequired: true,
    hint: t("import.hint"),
    control: h("input", { type: "file" }),
  });
  const name = inputField({ label: t("dataset.name"), isRequired: true, attributes: { maxlength: "120", autocomplete: "off" } });
  const format = selectField({
    label: t("dataset.format"),
    options: FORMATS.map((one) => [one, t(`format.${one}`)]),
    value: "auto",
  });
  const bar = h("progress", { value: 0, max: "1", "aria-label": t("import.progress") });
  const text = h("span", { class: "soft", role: "status" });
  const line = h("div", { class: "progress-line", hidden: true }, bar, text);
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const send = button(t("import.action"), { kind: "primary", type: "submit" });
  const stop = button(t("cancel"), { press: () => leave.abort(), hidden: true });
  let leave = new AbortController();
  signal.addEventListener("abort", () => leave.abort(), { once: true });
  const suggest = () => {
    const [chosen] = file.control.files;
    if (chosen) {
      const [, stem] = /^(.*?)(?:\.[^.]+)?$/.exec(chosen.name);
      name.control.value = stem.slice(0, 120);
    }
  };
  file.control.addEventListener("change", suggest);
  const root = h(
    "form",
    { class: "drop", novalidate: true, data: { tour: "import" } },
    h("div", { class: "fields" }, file.root, name.root, format.root),
    line,
    problem,
    h("div", { class: "actions" }, send, stop),
  );
  acceptDrops(root, file.control, suggest);
  root.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    const [chosen] = file.control.files;
    file.setProblem(chosen ? null : t("import.no_file"));
    name.setProblem(name.control.value.trim() ? null : t("problem.empty"));
    if (!chosen || !name.control.value.trim()) {
      (chosen ? name : file).control.focus();
      return;
    }
    leave = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    line.hidden = false;
    const parts = new URLSearchParams({ name: name.control.value.trim(), format: format.control.value });
    try {
      const made = await upload(`/api/datasets?${parts}`, chosen, {
        signal: leave.signal,
        progress: (share) => {
          bar.value = share;
          text.textContent = share < 1 ? t("import.sent", { share: withUnit(share, "share") }) : t("import.reads");
        },
      });
      await go(`/data/${made.id}`);
      say(t("import.done"));
    } catch (error) {
      if (error.name !== "AbortError") {
        problem.textContent = errorText(error);
        problem.hidden = false;
      }
    } finally {
      send.disabled = false;
      stop.hidden = true;
      line.hidden = true;
    }
  });
  return panel(t("import.title"), root);
}

/** Takes files that are dropped on the form. */
function acceptDrops(root, input, changed) {
  const over = (isOver) => (event) => {
    event.preventDefault();
    root.classList.toggle("is-over", isOver);
  };
  root.addEventListener("dragover", over(true));
  root.addEventListener("dragleave", over(false));
  root.addEventListener("drop", (event) => {
    over(false)(event);
    if (event.dataTransfer.files.length > 0) {
      input.files = event.dataTransfer.files;
      changed();
    }
  });
}

/** Shows the page. */
export async function render({ main, signal, reload }) {
  const { datasets } = await get("/api/datasets", { signal });
  const shown = datasets.length > 0 ? list(datasets, reload) : empty({
    picture: "data",
    title: t("dataset.none"),
    text: t(permits("operator") ? "dataset.none.text" : "dataset.none.viewer"),
  });
  fill(
    main,
    head(t("nav.data"), { lead: t("data.lead") }),
    h(
      "div",
      { class: "stack" },
      permits("operator") && importPanel(signal),
      panel(t("dataset.list"), shown, { isFlush: true }),
    ),
  );
}
