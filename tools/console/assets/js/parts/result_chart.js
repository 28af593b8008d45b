// The chart of a table's rows: one column across, others upwards. A column of texts may stand
// across, lines may be split by the values of a column, and both axes may be logarithmic.

import { fill, h } from "../dom.js";
import { plain } from "../format.js";
import { t } from "../i18n.js";
import { Chart } from "./chart.js";
import { field, selectField } from "./field.js";
import { say } from "./notice.js";

/** Most columns upwards, and most lines in all. */
const COLUMNS_MAX = 5;
const LINES_MAX = 10;
/** Most places of bars, and most texts for which bars are suggested. */
const BARS_MAX = 60;
const KINDS = ["line", "bars", "points"];
/** Endings of names of columns, and the units that they say. */
const UNITS = [
  [/_ns$/, "ns"],
  [/_bytes$|^bytes$/, "bytes"],
  [/_bytes_(s|per_second)$/, "bytes/s"],
  [/_per_second$|^messages_s$/, "1/s"],
  [/_(share|ratio|load)$/, "share"],
];

/** The unit that the name of a column ends with. */
function unitOf(name) {
  return UNITS.find(([ending]) => ending.test(name))?.[1] ?? null;
}

/** The different values of a list, in the order in which they come. */
function different(list) {
  return [...new Set(list)];
}

function textOf(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  return typeof value === "number" ? plain(value) : String(value);
}

/** The chart of a result and its controls. `state` is what the controls chose before. */
export class ResultChart {
  constructor({ name, signal, state, changed }) {
    this.name = name;
    this.signal = signal;
    this.changed = changed;
    this.leave = new AbortController();
    this.root = h("div");
    this.x = typeof state?.x === "string" ? state.x : null;
    this.y = Array.isArray(state?.y) ? state.y : [];
    this.kind = KINDS.includes(state?.kind) ? state.kind : null;
    this.split = typeof state?.split === "string" ? state.split : "";
    this.isLogX = state?.isLogX === true;
    this.isLogY = state?.isLogY === true;
  }

  /** What the controls choose. */
  state() {
    const { x, y, kind, split, isLogX, isLogY } = this;
    return { x, y, ...(kind && { kind }), ...(split && { split }), ...(isLogX && { isLogX }), ...(isLogY && { isLogY }) };
  }

  show(result) {
    this.result = result;
    this.names = result.columns.map(({ name }) => name);
    this.numeric = result.columns.filter(({ type }) => type !== "text").map(({ name }) => name);
    if (this.x === null || (this.x !== "" && !this.names.includes(this.x))) {
      this.x = this.suggested();
    }
    if (!this.names.includes(this.split)) {
      this.split = "";
    }
    this.y = this.y.filter((name) => this.numeric.includes(name));
    if (this.y.length === 0) {
      this.y = this.numeric.filter((name) => name !== this.x).slice(0, 1);
    }
    this.draw();
  }

  /** A column of texts that differ, as after grouping; else the first of several numbers. */
  suggested() {
    const { rows } = this.result;
    const names = this.names.find((name) => !this.numeric.includes(name)
      && rows.length <= BARS_MAX && different(this.column(name)).length === rows.length);
    return names ?? (this.numeric.length > 1 ? this.numeric[0] : "");
  }

  column(name) {
    const index = this.names.indexOf(name);
    return this.result.rows.map((row) => row[index]);
  }

  isText(name) {
    return name !== "" && !this.numeric.includes(name);
  }

  draw() {
    if (this.numeric.length === 0 || this.result.rows.length === 0) {
      this.leave.abort();
      fill(this.root, h("p", { class: "soft" }, t("result.no_chart")));
      return;
    }
    const again = (change) => (value) => {
      change(value);
      this.drawChart();
      this.changed();
    };
    const columns = this.names.map((name) => [name, name]);
    const across = selectField({
      label: t("result.across"),
      value: this.x,
      options: [["", t("result.row")], ...columns],
      change: again((value) => {
        this.x = value;
      }),
    });
    const split = selectField({
      label: t("result.split"),
      value: this.split,
      options: [["", t("result.no_split")], ...columns],
      change: again((value) => {
        this.split = value;
      }),
    });
    const kind = selectField({
      label: t("result.kind"),
      value: this.shownKind(),
      options: KINDS.map((one) => [one, t(`result.${one}`)]),
      change: again((value) => {
        this.kind = value;
      }),
    });
    const log = (key, label) => {
      const control = h("input", { type: "checkbox", checked: this[key] });
      control.addEventListener("change", () => again((value) => {
        this[key] = value;
      })(control.checked));
      return field({ control, label }).root;
    };
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
    this.kindControl = kind.control;
    this.place = h("div");
    fill(this.root, h(
      "div",
      { class: "stack" },
      h("div", { class: "fields chart-fields" }, across.root, split.root, kind.root),
      upwards,
      h("div", { class: "choices" }, log("isLogX", t("result.log_across")), log("isLogY", t("result.log_upwards"))),
      this.place,
    ));
    this.drawChart();
  }

  choose(name, box) {
    if (box.checked && this.y.length >= COLUMNS_MAX) {
      box.checked = false;
      say(t("result.lines_max", { count: String(COLUMNS_MAX) }), { bad: true });
      return;
    }
    this.y = box.checked ? [...this.y, name] : this.y.filter((one) => one !== name);
    this.drawChart();
    this.changed();
  }

  /** The chosen kind of chart, or the one that fits what stands across. */
  shownKind() {
    return this.kind ?? (this.isText(this.x) ? "bars" : "line");
  }

  /** The lines: for each column upwards, one for each value of the column that splits. */
  lines() {
    if (this.split === "") {
      return this.y.map((column) => ({ column, label: column, holds: () => true }));
    }
    const values = this.column(this.split);
    return different(values).flatMap((value) => this.y.map((column) => ({
      column,
      label: this.y.length > 1 ? `${textOf(value)} · ${column}` : textOf(value),
      holds: (place) => values[place] === value,
    })));
  }

  /** The places of the rows on the x axis; with names if they are not numbers of an axis. */
  places() {
    const values = this.x === "" ? this.result.rows.map((_, place) => place + 1) : this.column(this.x);
    if (this.isText(this.x)) {
      const names = different(values);
      return { at: values.map((value) => names.indexOf(value)), names: names.map(textOf) };
    }
    const known = different(values.filter((value) => typeof value === "number")).sort((one, other) => one - other);
    if (this.shownKind() === "bars" && known.length <= BARS_MAX) {
      return { at: values.map((value) => known.indexOf(value)), names: known.map(plain) };
    }
    return { at: values.map((value) => (typeof value === "number" ? value : null)), names: null };
  }

  drawChart() {
    this.leave.abort();
    this.leave = new AbortController();
    const signal = AbortSignal.any([this.signal, this.leave.signal]);
    this.kindControl.value = this.shownKind();
    const all = this.lines();
    const lines = all.slice(0, LINES_MAX);
    if (lines.length === 0) {
      fill(this.place);
      return;
    }
    const kind = this.shownKind();
    const { at, names } = this.places();
    const isLogX = this.isLogX && names === null;
    const isBeside = kind === "bars" && names !== null;
    // Bars at one name stand side by side: each line has a place of its own around it.
    const shift = (index) => (isBeside ? ((index - (lines.length - 1) / 2) * 0.7) / lines.length : 0);
    const points = lines.flatMap(({ column, holds }, index) => {
      const values = this.column(column);
      return at.flatMap((x, place) => {
        const isThere = x !== null && holds(place) && !(isLogX && x <= 0) && !(names && x < 0);
        return isThere ? [{ x: x + shift(index), index, value: values[place] ?? null }] : [];
      });
    });
    points.sort((one, other) => one.x - other.x);
    const [unit, ...others] = different(this.y.map(unitOf));
    const chart = new Chart({
      title: this.x === "" ? this.name : t("result.over", { name: this.x }),
      file: this.name,
      kind,
      unit: others.length === 0 ? unit : null,
      isLog: this.isLogY,
      x: { label: this.x || t("result.row"), unit: this.x === "" ? "exact" : unitOf(this.x), isLog: isLogX, names },
      series: lines.map(({ label }, index) => ({ label, isData: true, dash: Math.floor(index / 5) })),
    }, signal);
    fill(
      this.place,
      all.length > lines.length && h("p", { class: "soft small" }, t("result.first_lines", { count: String(LINES_MAX), all: String(all.length) })),
      chart.root,
    );
    chart.set(joined(points, lines.length));
  }
}

/**
 * Points as the lists of a chart. Points of one place share it; a line has no value at the places
 * of the others, and goes on over them.
 */
function joined(points, count) {
  const places = [];
  const lists = Array.from({ length: count }, () => []);
  for (const { x, index, value } of points) {
    const isNew = places.at(-1) !== x || lists[index][places.length - 1] !== undefined;
    if (isNew) {
      places.push(x);
      lists.forEach((list) => list.push(undefined));
    }
    lists[index][places.length - 1] = value;
  }
  return [places, ...lists];
}
