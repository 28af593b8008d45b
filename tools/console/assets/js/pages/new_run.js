// The form of a new run. Fields, limits and presets come from the server; this page adds names,
// hints and which fields belong to which choice. What is wrong is said at its field.

import { ApiError, errorText, get, post } from "../api.js";
import { fill, h, uniqueId } from "../dom.js";
import { fieldText, limitText, parseNumber } from "../format.js";
import { count, known, t } from "../i18n.js";
import { busy, button, inputField, selectField, field } from "../parts/field.js";
import { say } from "../parts/notice.js";
import { head } from "../parts/page.js";
import { go } from "../router.js";
import { flatten, nest, settingTitle } from "../run_data.js";

/** Fields that mean nothing with other values of a choice, though the server takes them. */
const SHOWN_WITH = {
  "card.weights.alpha": { path: "card.policy", values: ["hybrid"] },
  "card.weights.window": { path: "card.policy", values: ["hybrid"] },
  "card.weights.half_life": { path: "card.policy", values: ["hybrid"] },
  "card.weights.samples": { path: "card.policy", values: ["hybrid"] },
};
/** Units that the names of fields say already. */
const SAID = new Set(["", "objects", "points", "share", "queue pairs"]);
const OPEN_GROUPS = new Set(["workload", "arrival", "length", "card"]);

/** A field of the form with its control. */
class Setting {
  constructor(description, changed) {
    this.description = description;
    const { path, kind, unit, choices } = description;
    const shared = { label: settingTitle(path), hint: hintOf(description) };
    const change = () => changed(this);
    if (kind === "choice") {
      const options = choices.map((one) => [String(one), known(`choice.${one}`, String(one))]);
      this.field = selectField({ ...shared, options, change });
    } else if (kind === "boolean") {
      this.field = field({ ...shared, control: h("input", { type: "checkbox", on: { change } }) });
    } else {
      const attributes = { inputmode: "decimal", autocomplete: "off", spellcheck: "false" };
      const shownUnit = SAID.has(unit ?? "") ? null : known(`unit.${unit}`, unit);
      this.field = inputField({ ...shared, unit: shownUnit, attributes, input: change });
    }
    this.root = this.field.root;
    this.root.dataset.path = path;
  }

  get isNumber() {
    return this.description.kind === "integer" || this.description.kind === "number";
  }

  get value() {
    const { control } = this.field;
    if (this.description.kind === "boolean") {
      return control.checked;
    }
    return this.isNumber ? parseNumber(control.value) : control.value;
  }

  set value(value) {
    const { control } = this.field;
    if (this.description.kind === "boolean") {
      control.checked = Boolean(value);
    } else {
      control.value = this.isNumber ? fieldText(value) : String(value ?? "");
    }
    this.field.setProblem(null);
  }

  /** What is wrong with the value, or nothing. */
  problem() {
    if (!this.isNumber) {
      return null;
    }
    const { value, description } = this;
    const { kind, minimum, maximum } = description;
    if (!Number.isFinite(value)) {
      return t("problem.number");
    }
    if (kind === "integer" && !Number.isInteger(value)) {
      return t("problem.integer");
    }
    if (value < (minimum ?? -Infinity) || value > (maximum ?? Infinity)) {
      return t("problem.range", { minimum: limitText(minimum), maximum: limitText(maximum) });
    }
    return null;
  }

  check() {
    const problem = this.root.hidden ? null : this.problem();
    this.field.setProblem(problem);
    return problem === null;
  }
}

function hintOf({ path, minimum, maximum, kind }) {
  const text = known(`hint.${path}`, "");
  const isNumber = kind === "integer" || kind === "number";
  const hasLimits = isNumber && typeof minimum === "number" && typeof maximum === "number";
  if (!text && !hasLimits) {
    return null;
  }
  const limits = hasLimits && t("hint.limits", { minimum: limitText(minimum), maximum: limitText(maximum) });
  return [text && h("span", null, text, " "), limits && h("span", { class: "nowrap" }, limits)];
}

/** The form: fields by path, groups, presets, and the values that the presets set. */
class Form {
  constructor(form, start) {
    this.settings = new Map();
    this.base = new Map();
    this.groups = new Map();
    for (const description of form.fields) {
      const setting = new Setting(description, (one) => this.onChange(one));
      this.settings.set(description.path, setting);
      const group = this.groups.get(description.group) ?? [];
      group.push(setting);
      this.groups.set(description.group, group);
    }
    this.changed = h("p", { class: "soft", role: "status" });
    this.load(start);
  }

  /** Takes the values of nested settings; fields without one get their default. */
  load(settings) {
    const given = new Map(flatten(settings ?? {}));
    for (const [path, setting] of this.settings) {
      setting.value = given.has(path) ? given.get(path) : setting.description.default;
      this.base.set(path, String(setting.value));
    }
    this.showDependent();
    this.showChanged();
  }

  /** Whether the choice that a condition names has one of its values. */
  holds(condition) {
    return !condition || condition.values.includes(this.settings.get(condition.path)?.value);
  }

  showDependent() {
    for (const [path, { root, description }] of this.settings) {
      root.hidden = !this.holds(description.when) || !this.holds(SHOWN_WITH[path]);
    }
  }

  showChanged() {
    let number = 0;
    for (const [path, setting] of this.settings) {
      const isChanged = !setting.root.hidden && String(setting.value) !== this.base.get(path);
      setting.root.classList.toggle("is-changed", isChanged);
      number += isChanged ? 1 : 0;
    }
    this.changed.textContent = number === 0 ? t("new_run.unchanged") : count("new_run.changed", number);
  }

  onChange(setting) {
    if (setting.field.control.getAttribute("aria-invalid") === "true" || setting.isNumber) {
      setting.check();
    }
    this.showDependent();
    this.showChanged();
  }

  /** The settings as the server takes them. */
  nested() {
    const used = [...this.settings].filter(([, { description }]) => this.holds(description.when));
    return nest(used.map(([path, setting]) => [path, setting.value]));
  }

  /** Checks every field; the first wrong one is returned. */
  firstWrong() {
    const wrong = [...this.settings.values()].filter((setting) => !setting.check());
    return wrong[0] ?? null;
  }

  groupsRoot() {
    return [...this.groups].map(([name, list]) => h(
      "details",
      { class: "panel group", open: OPEN_GROUPS.has(name), data: { group: name } },
      h("summary", null, h("h2", null, known(`group.${name}`, name)), h("span", { class: "hint" }, known(`group.${name}.text`, ""))),
      h("div", { class: "panel-body fields" }, list.map(({ root }) => root)),
    ));
  }
}

/** Opens the group of a field and puts the focus on it. */
function reveal(setting) {
  setting.root.closest("details")?.setAttribute("open", "");
  setting.field.control.focus();
}

function presetCards(presets, chosen, choose) {
  const name = uniqueId("preset");
  return h(
    "fieldset",
    { class: "panel", data: { tour: "presets" } },
    h("legend", { class: "hidden-text" }, t("new_run.presets")),
    h("div", { class: "panel-head" }, h("h2", null, t("new_run.presets")), h("span", { class: "hint" }, t("new_run.presets.text"))),
    h("div", { class: "panel-body presets" }, presets.map(({ id, settings }) => h(
      "label",
      { class: "preset" },
      h("input", { type: "radio", name, value: id, checked: id === chosen, on: { change: () => choose(settings) } }),
      h("strong", null, known(`preset.${id}`, id)),
      h("span", { class: "hint" }, known(`preset.${id}.text`, "")),
    ))),
  );
}

/** Where the form begins: a run that is cloned, or the first preset. */
async function startOf(query, form, signal) {
  const clone = query.get("clone");
  if (clone !== null) {
    const run = await get(`/api/runs/${encodeURIComponent(clone)}`, { signal });
    return { name: t("new_run.copy_of", { name: run.name }).slice(0, 100), settings: run.settings, trace: run.trace ?? null, preset: null };
  }
  const [first] = form.presets;
  return { name: "", settings: first?.settings, trace: null, preset: first?.id };
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
  const form = new Form(description, start.settings);
  const name = inputField({
    label: t("run.name"),
    value: start.name,
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
    h("div", { class: "panel panel-body fields" }, name.root, trace && trace.root),
    presetCards(description.presets, start.preset, (settings) => form.load(settings)),
    form.groupsRoot(),
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
      say(t("new_run.queued"));
      await go(`/runs/${run.id}`);
    } catch (error) {
      showError(error, form, name, summary);
    }
  });
  fill(main, head(t("runs.new"), { lead: t("new_run.lead") }), root);
}
