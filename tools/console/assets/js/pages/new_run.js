// The form of a new run. Presets come from the server; what is wrong is said at its field.

import { ApiError, errorText, get, post } from "../api.js";
import { fill, h, uniqueId } from "../dom.js";
import { integer } from "../format.js";
import { known, t } from "../i18n.js";
import { busy, button, inputField, selectField } from "../parts/field.js";
import { head, spread } from "../parts/page.js";
import { Form, reveal } from "../parts/settings.js";
import { go } from "../router.js";

/** Narrowest card of a preset, with the gap beside it, in pixels. */
const PRESET_MIN = 242;

function presetCards(presets, chosen, choose) {
  const name = uniqueId("preset");
  return h(
    "fieldset",
    { class: "panel", data: { tour: "presets" } },
    h("legend", { class: "hidden-text" }, t("new_run.presets")),
    h("div", { class: "panel-head" }, h("h2", null, t("new_run.presets")), h("span", { class: "hint" }, t("new_run.presets.text"))),
    spread(h("div", { class: "panel-body presets" }, presets.map(({ id, settings }) => h(
      "label",
      { class: "preset" },
      h("input", { type: "radio", name, value: id, checked: id === chosen, on: { change: () => choose(settings) } }),
      h("strong", null, known(`preset.${id}`, id)),
      h("span", { class: "hint" }, known(`preset.${id}.text`, "")),
    ))), PRESET_MIN),
  );
}

/** Where the form begins: a run that is cloned, a point of a search, or the first preset. */
async function startOf(query, form, signal) {
  const clone = query.get("clone");
  if (clone !== null) {
    const run = await get(`/api/runs/${encodeURIComponent(clone)}`, { signal });
    return { name: t("new_run.copy_of", { name: run.name }).slice(0, 100), settings: run.settings, trace: run.trace ?? null, preset: null, origin: "run" };
  }
  const fit = query.get("fit");
  if (fit !== null) {
    const [policy, number] = [query.get("policy") ?? "", query.get("count") ?? ""];
    const which = new URLSearchParams({ policy, count: number });
    const settings = await get(`/api/fits/${encodeURIComponent(fit)}/settings?${which}`, { signal });
    const { queue_pairs: pairs, regions } = settings.workload.population;
    const name = t("new_run.of_fit", { policy, pairs: integer(pairs), regions: integer(regions) });
    return { name, settings, trace: null, preset: null, origin: "point" };
  }
  const [first] = form.presets;
  return { name: "", settings: first?.settings, trace: null, preset: first?.id, origin: "preset" };
}

function showError(error, form, name, summary) {
  const path = error instanceof ApiError && error.field ? error.field.replace(/^settings\./, "") : null;
  const setting = form.settings.get(path);
  const text = errorText(error);
  if (setting) {
    setting.field.setProblem(text);
    reveal(setting);
  } else if (path === "name") {
    name.setProblem(text);
    name.control.focus();
  } else {
    summary.textContent = text;
    summary.hidden = false;
    summary.focus();
  }
}

/** Shows the page. */
export async function render({ main, query, signal }) {
  const [description, { datasets }] = await Promise.all([
    get("/api/form", { signal }),
    get("/api/datasets", { signal }).catch(() => ({ datasets: [] })),
  ]);
  const start = await startOf(query, description, signal);
  const form = new Form(description, start.settings, start.origin);
  const name = inputField({
    label: t("run.name"),
    value: start.name,
    isRequired: true,
    attributes: { maxlength: "100", placeholder: t("new_run.name.example"), autocomplete: "off" },
  });
  const traces = datasets.filter(({ format }) => format === "trace");
  const trace = traces.length > 0 && selectField({
    label: t("new_run.trace"),
    hint: t("new_run.trace.text"),
    value: start.trace === null ? "" : String(start.trace),
    options: [["", t("new_run.no_trace")], ...traces.map((one) => [String(one.id), one.name])],
  });
  const summary = h("p", { class: "problem", role: "alert", tabindex: "-1", hidden: true, translate: "no" });
  const send = button(t("new_run.start"), { kind: "primary", type: "submit", "data-tour": "start" });
  const root = h(
    "form",
    { class: "stack", novalidate: true },
    h(
      "div",
      { class: "panel panel-body" },
      h("div", { class: "fields" }, name.root, trace && trace.root),
      h("p", { class: "hint required-key" }, t("required")),
    ),
    presetCards(description.presets, start.preset, (settings) => form.load(settings)),
    form.modesRoot(),
    h("div", { class: "submit-bar" }, h("div", null, form.changed, summary), h(
      "div",
      { class: "actions" },
      h("a", { class: "button", href: "/runs" }, t("cancel")),
      send,
    )),
  );
  root.addEventListener("submit", async (event) => {
    event.preventDefault();
    summary.hidden = true;
    name.setProblem(name.control.value.trim() ? null : t("problem.empty"));
    const wrong = form.firstWrong();
    if (!name.control.value.trim()) {
      name.control.focus();
      return;
    }
    if (wrong) {
      reveal(wrong);
      return;
    }
    const body = { name: name.control.value.trim(), settings: form.nested() };
    if (trace && trace.control.value) {
      body.trace = Number(trace.control.value);
    }
    try {
      const run = await busy(send, () => post("/api/runs", body));
      await go(`/runs/${run.id}`);
    } catch (error) {
      showError(error, form, name, summary);
    }
  });
  fill(main, head(t("runs.new"), { lead: t("new_run.lead") }), root);
}
