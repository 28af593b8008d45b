// The form of settings: fields with their checks, groups, and which fields belong to which choice.
// Fields and limits come from the server; names and hints are texts.

import { append, h } from "../dom.js";
import { fieldText, limitText, parseNumber } from "../format.js";
import { count, known, t } from "../i18n.js";
import { flatten, nest, settingTitle } from "../run_data.js";
import { field, inputField, selectField } from "./field.js";

/** Fields that mean nothing with other values of a choice, though the server takes them. */
const SHOWN_WITH = {
  "card.weights.alpha": { path: "card.policy", values: ["hybrid"] },
  "card.weights.window": { path: "card.policy", values: ["hybrid"] },
  "card.weights.half_life": { path: "card.policy", values: ["hybrid"] },
  "card.weights.samples": { path: "card.policy", values: ["hybrid"] },
};
const OPEN_GROUPS = new Set(["workload", "arrival", "length", "card", "cxl", "host"]);
/** The settings that decide most. The others are shown on demand, and where they differ. */
const MAIN = new Set([
  "workload.pattern.name",
  "workload.pattern.exponent",
  "workload.pattern.period",
  "workload.pattern.burst",
  "workload.pattern.length",
  "workload.population.queue_pairs",
  "workload.population.regions",
  "arrival.name",
  "arrival.window",
  "arrival.messages_s",
  "messages",
  "warmup",
  "card.messages_s",
  "card.card_entries",
  "card.policy",
  "card.cxl_pages",
  "card.cxl.latency_ns",
  "card.host.latency_ns",
]);
const MODES = ["main", "all"];
const KEY = "farcore.settings";

function rememberedMode() {
  try {
    return localStorage.getItem(KEY) === "all" ? "all" : "main";
  } catch {
    // Without a memory the form begins short.
    return "main";
  }
}

function rememberMode(mode) {
  try {
    localStorage.setItem(KEY, mode);
  } catch {
    // It holds until the page is closed.
  }
}

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
      const shownUnit = known(`unit.${unit}`, null);
      this.field = inputField({ ...shared, unit: shownUnit, attributes, input: change });
    }
    this.root = this.field.root;
    this.root.dataset.path = path;
    this.root.dataset.level = MAIN.has(path) ? "main" : "more";
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
export class Form {
  /** `origin` says whose values `start` are: of a `preset`, a `run`, or a `point` of a search. */
  constructor(form, start, origin = "preset") {
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
    this.load(start, origin);
  }

  /** Takes the values of nested settings; fields without one get their default. */
  load(settings, origin = "preset") {
    this.origin = origin;
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
    this.changed.textContent = number === 0
      ? t(`new_run.unchanged.${this.origin}`)
      : count(`new_run.changed.${this.origin}`, number);
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

  /** The groups below a choice between the main settings and all. */
  modesRoot() {
    const root = h("div", { class: "stack settings" });
    const buttons = MODES.map((mode) => h(
      "button",
      { type: "button", class: "button compact", data: { mode }, on: { click: () => show(mode) } },
      t(`settings.${mode}`),
    ));
    const show = (mode) => {
      root.dataset.mode = mode;
      for (const one of buttons) {
        one.setAttribute("aria-pressed", String(one.dataset.mode === mode));
      }
      rememberMode(mode);
    };
    root.addEventListener("all-settings", () => show("all"));
    show(rememberedMode());
    const heading = h(
      "div",
      { class: "panel panel-head settings-head" },
      h("div", null, h("h2", null, t("run.settings")), h("p", { class: "hint" }, t("settings.text", { count: String(this.settings.size) }))),
      h("div", { class: "actions switch", role: "group", "aria-label": t("run.settings") }, buttons),
    );
    return append(root, heading, this.groupsRoot());
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

/** Shows a field, opens its group and puts the focus on it. */
export function reveal(setting) {
  if (setting.root.dataset.level === "more") {
    setting.root.closest(".settings")?.dispatchEvent(new Event("all-settings"));
  }
  setting.root.closest("details")?.setAttribute("open", "");
  setting.field.control.focus();
}
