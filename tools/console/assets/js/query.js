// The query builder: joins, derived columns, filters, groups with aggregates, and order, as rows of
// controls. `query()` gives what the server takes; columns that a step makes are offered to the
// steps after it.

import { fill, h, icon, uniqueId } from "./dom.js";
import { parseNumber } from "./format.js";
import { t } from "./i18n.js";
import { button, inputField, selectField } from "./parts/field.js";

const OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "contains", "is_null", "not_null"];
const WITHOUT_VALUE = new Set(["is_null", "not_null"]);
const FUNCTIONS = ["count", "sum", "mean", "minimum", "maximum", "p50", "p99", "stddev"];
const DEFAULT_LIMIT = 200;
/** Longest expression that the server reads, in bytes. */
const EXPRESSION_LENGTH = "4096";
const WHOLE = /^-?(?:0|[1-9]\d*)$/;

/** Whether an integer is written as the server reads it, and fits its 64 bits. */
function isWhole(text) {
  return WHOLE.test(text) && text.length <= 20 && BigInt.asIntN(64, BigInt(text)) === BigInt(text);
}

/**
 * A value of a filter: a number where the column has numbers. Integers of an integer column stay
 * texts, which the server reads: beyond 2^53 a number is not exact. What a derived column holds
 * only the server knows, and it reads a text for either.
 */
function valueOf(text, type) {
  if (type !== "integer" && type !== "number") {
    return text;
  }
  if (type === "integer" && isWhole(text.trim())) {
    return text.trim();
  }
  const value = parseNumber(text);
  return Number.isFinite(value) ? value : text;
}

/** The fields of a row of each part, with the values that stand for what is missing. */
const ROWS = {
  derive: { name: "", expression: "" },
  filter: { column: "", operator: "=", value: "" },
  aggregates: { function: "mean", column: "", name: "" },
  order: { column: "", descending: false },
};

/** The rows of a part as an address has them: only fields of the right type are taken. */
function rowsOf(part, list) {
  return (Array.isArray(list) ? list : []).filter((one) => one !== null && typeof one === "object").map((one) => {
    const row = { ...ROWS[part] };
    for (const [name, value] of Object.entries(row)) {
      row[name] = typeof one[name] === typeof value ? one[name] : value;
    }
    return row;
  });
}

/** The state of a builder and its controls. `columns` are those of the source. */
export class QueryBuilder {
  constructor({ source, columns, datasets, changed, state }) {
    this.source = source;
    this.columns = columns;
    this.datasets = datasets.filter(({ id }) => id !== source);
    this.changed = changed;
    this.join = null;
    this.derive = [];
    this.filter = [];
    this.group = [];
    this.aggregates = [];
    this.order = [];
    this.limit = DEFAULT_LIMIT;
    this.fields = new Map();
    this.restore(state ?? {});
    this.root = h("div", { class: "builder", data: { tour: "query" } });
    this.draw();
  }

  /** Takes what an address keeps of a builder. */
  restore(state) {
    for (const part of Object.keys(ROWS)) {
      this[part] = rowsOf(part, state[part]);
    }
    this.group = (Array.isArray(state.group) ? state.group : []).filter((name) => typeof name === "string");
    if (Number.isInteger(state.limit) && state.limit > 0) {
      this.limit = state.limit;
    }
    const joined = this.datasets.find(({ id }) => id === state.join?.dataset);
    if (joined) {
      const { left, right, kind } = state.join;
      this.join = { dataset: joined.id, left: String(left), right: String(right), kind: kind === "left" ? "left" : "inner" };
    }
  }

  /** What an address keeps: parts that are not as at the beginning. */
  state() {
    const { join, group, limit } = this;
    const parts = Object.keys(ROWS).filter((part) => this[part].length > 0).map((part) => [part, this[part]]);
    return {
      ...(join ? { join } : {}),
      ...Object.fromEntries(parts),
      ...(group.length > 0 ? { group } : {}),
      ...(limit === DEFAULT_LIMIT ? {} : { limit }),
    };
  }

  /** Columns of the source, of the joined data set, and derived ones, of which no type is known. */
  inputs() {
    const joined = this.join ? this.datasets.find(({ id }) => id === this.join.dataset)?.columns ?? [] : [];
    const others = joined.map((one) => ({ ...one, name: `joined.${one.name}` }));
    const derived = this.derive.filter(({ name }) => name).map(({ name }) => ({ name, type: null }));
    return [...this.columns, ...others, ...derived];
  }

  /** Columns of the result. */
  outputs() {
    if (this.group.length === 0 && this.aggregates.length === 0) {
      return this.inputs();
    }
    const inputs = new Map(this.inputs().map((one) => [one.name, one]));
    const groups = this.group.map((name) => inputs.get(name)).filter(Boolean);
    return [...groups, ...this.aggregates.map(({ name }) => ({ name, type: null }))];
  }

  /** The query as the server takes it; without a limit its result has all rows. */
  query({ isLimited = true } = {}) {
    const types = new Map(this.inputs().map(({ name, type }) => [name, type]));
    return {
      source: this.source,
      ...(this.join ? { join: this.join } : {}),
      derive: this.derive.filter(({ name, expression }) => name && expression),
      filter: this.filter.filter(({ column }) => column).map(({ column, operator, value }) => {
        return WITHOUT_VALUE.has(operator)
          ? { column, operator }
          : { column, operator, value: operator === "contains" ? value : valueOf(value, types.get(column)) };
      }),
      group: this.group,
      aggregates: this.aggregates.map(({ function: name, column, name: result }) => {
        return { function: name, ...(name === "count" && !column ? {} : { column }), name: result };
      }),
      order: this.order.filter(({ column }) => column),
      ...(isLimited ? { limit: this.limit } : {}),
    };
  }

  /** Notes which control writes a value of the query, and adds the line for its problem. */
  bind(path, { root, control }) {
    this.fields.set(path, control);
    return root;
  }

  /** The place in the builder of a row of the query: rows that are not filled in are not sent. */
  placeOf(part, sent) {
    const isSent = {
      derive: ({ name, expression }) => name && expression,
      filter: ({ column }) => column,
      order: ({ column }) => column,
    }[part] ?? (() => true);
    const places = (this[part] ?? []).flatMap((one, place) => (isSent(one) ? [place] : []));
    return places[sent] ?? sent;
  }

  /**
   * Shows the problem of an answer below the row that it names, and marks its control. `path` is
   * such as `derive[0].expression`. False if the builder has no such part.
   */
  setProblem(path, text) {
    const [, part, sent, key] = /^(\w+)(?:\[(\d+)\])?(?:\.(\w+))?/.exec(path ?? "") ?? [];
    const place = sent === undefined ? null : this.placeOf(part, Number(sent));
    const control = this.fields.get([part, place, key].filter((one) => one !== null && one !== undefined).join("."));
    const row = control?.closest(".builder-row")?.nextElementSibling;
    const line = row?.matches(".problem") ? row : this.root.querySelector(`[data-part="${CSS.escape(part ?? "")}"] > .problem`);
    if (!line) {
      return false;
    }
    line.textContent = text;
    line.hidden = false;
    if (control) {
      line.id ||= uniqueId("problem");
      control.setAttribute("aria-invalid", "true");
      control.setAttribute("aria-describedby", line.id);
      control.focus();
    }
    return true;
  }

  draw() {
    this.fields.clear();
    fill(
      this.root,
      this.datasets.length > 0 && this.joinPart(),
      this.listPart("derive", this.derive, () => ({ name: "", expression: "" }), (one, place) => this.deriveRow(one, place)),
      this.listPart("filter", this.filter, () => ({ column: this.inputs()[0]?.name ?? "", operator: "=", value: "" }), (one, place) => this.filterRow(one, place)),
      this.groupPart(),
      this.listPart("aggregates", this.aggregates, () => this.newAggregate(), (one, place) => this.aggregateRow(one, place)),
      this.listPart("order", this.order, () => ({ column: this.outputs()[0]?.name ?? "", descending: false }), (one, place) => this.orderRow(one, place)),
      this.limitPart(),
    );
  }

  /** Draws anew and keeps the focus on the part that was used. */
  redraw(part) {
    this.draw();
    const buttons = this.root.querySelectorAll(`[data-part="${part}"] button`);
    const last = this.root.querySelector(`[data-part="${part}"] .builder-row:last-of-type`);
    (last?.querySelector("input, select") ?? buttons[0])?.focus();
    this.changed();
  }

  part(name, rows, actions) {
    return h(
      "div",
      { class: "builder-part", role: "group", "aria-label": t(`query.${name}`), data: { part: name } },
      h("div", { class: "builder-part-head" }, h("div", null, h("h3", null, t(`query.${name}`)), h("p", { class: "hint" }, t(`query.${name}.text`))), actions),
      rows,
      this.problemLine(),
    );
  }

  problemLine() {
    return h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  }

  listPart(name, list, make, row) {
    const add = button(t("add"), {
      kind: "compact",
      "aria-label": t(`query.${name}.add`),
      press: () => {
        list.push(make());
        this.redraw(name);
      },
    }, icon("plus"));
    const rows = list.map((one, place) => {
      const erase = button("", {
        kind: "quiet",
        "aria-label": t("remove"),
        press: () => {
          list.splice(list.indexOf(one), 1);
          this.redraw(name);
        },
      }, icon("close"));
      return [h("div", { class: "builder-row" }, row(one, place), erase), this.problemLine()];
    });
    return this.part(name, rows, add);
  }

  /** A select of columns that writes into `one[key]`; `path` is that of the value in the query. */
  columnField(one, key, label, columns, path, optional) {
    const options = columns.map(({ name }) => [name, name]);
    if (one[key] && !columns.some(({ name }) => name === one[key])) {
      // A column that is gone is shown, so that it can be seen and changed.
      options.push([one[key], one[key]]);
    }
    return this.bind(path, selectField({
      label,
      value: one[key] ?? "",
      options: optional ? [["", t("query.rows")], ...options] : options,
      change: (value) => {
        one[key] = value;
        this.changed();
      },
    }));
  }

  textField(one, key, label, path, className, attributes) {
    return this.bind(path, inputField({
      label,
      value: one[key],
      className,
      attributes: { autocomplete: "off", spellcheck: "false", maxlength: "500", ...attributes },
      input: (value) => {
        one[key] = value;
        this.changed();
      },
    }));
  }

  deriveRow(one, place) {
    return [
      this.textField(one, "name", t("query.new_column"), `derive.${place}.name`),
      this.textField(one, "expression", t("query.expression"), `derive.${place}.expression`, "wide", {
        maxlength: EXPRESSION_LENGTH,
        placeholder: t("query.expression.example"),
      }),
    ];
  }

  filterRow(one, place) {
    const value = this.textField(one, "value", t("query.value"), `filter.${place}.value`);
    value.hidden = WITHOUT_VALUE.has(one.operator);
    return [
      this.columnField(one, "column", t("query.column"), this.inputs(), `filter.${place}.column`),
      this.bind(`filter.${place}.operator`, selectField({
        label: t("query.operator"),
        className: "narrow",
        value: one.operator,
        options: OPERATORS.map((name) => [name, /\w/.test(name) ? t(`operator.${name}`) : name]),
        change: (name) => {
          one.operator = name;
          value.hidden = WITHOUT_VALUE.has(name);
          this.changed();
        },
      })),
      value,
    ];
  }

  newAggregate() {
    const numeric = this.inputs().find(({ type }) => type !== "text");
    return { function: "mean", column: numeric?.name ?? "", name: numeric ? `mean_${numeric.name}` : "mean" };
  }

  aggregateRow(one, place) {
    const path = `aggregates.${place}`;
    const name = this.textField(one, "name", t("query.result_name"), `${path}.name`);
    const rename = () => {
      one.name = one.column ? `${one.function}_${one.column}` : one.function;
      name.querySelector("input").value = one.name;
      this.changed();
    };
    const column = this.columnField(one, "column", t("query.column"), this.inputs(), `${path}.column`, true);
    column.addEventListener("change", rename);
    const functions = this.bind(`${path}.function`, selectField({
      label: t("query.function"),
      value: one.function,
      options: FUNCTIONS.map((each) => [each, t(`function.${each}`)]),
      change: (each) => {
        one.function = each;
        rename();
      },
    }));
    return [functions, column, name];
  }

  orderRow(one, place) {
    return [
      this.columnField(one, "column", t("query.column"), this.outputs(), `order.${place}.column`),
      selectField({
        label: t("query.direction"),
        value: one.descending ? "down" : "up",
        options: [["up", t("query.up")], ["down", t("query.down")]],
        change: (value) => {
          one.descending = value === "down";
          this.changed();
        },
      }).root,
    ];
  }

  groupPart() {
    const boxes = this.inputs().map(({ name }) => h("label", { translate: "no" }, h("input", {
      type: "checkbox",
      checked: this.group.includes(name),
      on: {
        change: (event) => {
          this.group = event.target.checked ? [...this.group, name] : this.group.filter((one) => one !== name);
          this.changed();
        },
      },
    }), name));
    return this.part("group", h("div", { class: "choices" }, boxes));
  }

  joinPart() {
    const use = (id) => {
      const dataset = this.datasets.find((one) => one.id === Number(id));
      const left = this.columns[0]?.name;
      const same = dataset?.columns.find(({ name }) => name === left) ?? dataset?.columns[0];
      this.join = dataset ? { dataset: dataset.id, left, right: same?.name, kind: "inner" } : null;
      this.redraw("join");
    };
    const which = selectField({
      label: t("query.join.with"),
      value: this.join ? String(this.join.dataset) : "",
      options: [["", t("query.join.none")], ...this.datasets.map(({ id, name }) => [String(id), name])],
      change: use,
    }).root;
    const rest = this.join && [
      this.columnField(this.join, "left", t("query.join.left"), this.columns, "join.left"),
      this.columnField(this.join, "right", t("query.join.right"), this.datasets.find(({ id }) => id === this.join.dataset).columns, "join.right"),
      selectField({
        label: t("query.join.kind"),
        value: this.join.kind,
        options: ["inner", "left"].map((kind) => [kind, t(`query.join.${kind}_kind`)]),
        change: (kind) => {
          this.join.kind = kind;
          this.changed();
        },
      }).root,
    ];
    return this.part("join", h("div", { class: "builder-row" }, which, rest));
  }

  limitPart() {
    const limit = inputField({
      label: t("query.limit"),
      value: String(this.limit),
      className: "narrow",
      attributes: { inputmode: "numeric" },
      input: (text) => {
        const value = parseNumber(text);
        if (Number.isInteger(value) && value > 0) {
          this.limit = value;
          this.changed();
        }
      },
    });
    return h(
      "div",
      { class: "builder-part", data: { part: "limit" } },
      h("div", { class: "builder-row" }, this.bind("limit", limit)),
      this.problemLine(),
    );
  }
}
