// All runs: found by words and state, ordered by a column, up to four chosen to compare. The
// address keeps what the list shows.

import { get, permits } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { integer, shortTime, withUnit } from "../format.js";
import { count, known, t } from "../i18n.js";
import { busy, button, inputField, selectField } from "../parts/field.js";
import { empty, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";
import { go, rewriteQuery } from "../router.js";
import { COMPARED_MAX, Pace, figureOf, isEnded, shareOf, stateBadges } from "../run_data.js";

const PAGE = 25;
const REFRESH_MS = 2000;
/** Pause after a letter before runs are looked for. */
const TYPED_MS = 250;
const STATES = ["", "queued", "running", "done", "cancelled", "failed", "interrupted"];
/** Orders of the server, and the names of their columns. */
const ORDERS = {
  created: "run.created",
  name: "run.name",
  queue_pairs: "runs.queue_pairs",
  messages_s: "column.messages_s",
  hit_ratio: "column.hit_ratio",
  p99_ns: "column.p99_ns",
};

/** What the address says that the list shows; what it says wrongly is left out. */
function whichOf(query) {
  const one = (name, list, otherwise) => (list.includes(query.get(name)) ? query.get(name) : otherwise);
  return {
    state: one("state", STATES, ""),
    text: (query.get("text") ?? "").slice(0, 200),
    order: one("order", Object.keys(ORDERS), "created"),
    isRising: query.get("rising") === "true",
  };
}

/** The same as parameters, for the address and for the server. */
function parametersOf({ state, text, order, isRising }) {
  const parts = new URLSearchParams();
  if (state) {
    parts.set("state", state);
  }
  if (text.trim()) {
    parts.set("text", text.trim());
  }
  if (order !== "created") {
    parts.set("order", order);
  }
  if (isRising) {
    parts.set("rising", "true");
  }
  return parts;
}

function stateCell(run, paces) {
  if (run.state !== "running") {
    return stateBadges(run);
  }
  const share = shareOf(run.progress);
  const pace = paces.get(run.id) ?? new Pace();
  paces.set(run.id, pace);
  const left = pace.leftText(share);
  return h(
    "span",
    { class: "progress-cell" },
    h(
      "span",
      { class: "progress-line" },
      h("progress", { value: share, max: "1", "aria-label": t("run.progress") }),
      data(withUnit(share, "share")),
    ),
    left && h("span", { class: "soft small" }, left),
  );
}

/** The settings by which people know a run again. */
function settingsCell({ brief }) {
  if (!brief) {
    return "";
  }
  const { pattern, policy, card_entries: places, cxl_pages: pages } = brief;
  return h(
    "span",
    { class: "soft small" },
    t("runs.settings", {
      pattern: known(`choice.${pattern}`, pattern),
      policy: known(`policy.${policy}`, null) ?? known(`choice.${policy}`, policy),
      places: integer(places),
    }),
    pages > 0 && [", ", t("runs.with_cxl")],
  );
}

function columnsOf(choose, paces) {
  const number = (key, unit) => ({
    title: t(`column.${key}`),
    order: key,
    isNumber: true,
    cell: (run) => data(withUnit(figureOf(run, key) ?? Number.NaN, unit)),
  });
  return [
    {
      title: t("runs.choose"),
      hideTitle: true,
      className: "row-pick",
      cell: (run) => (run.state === "queued" ? "" : choose(run)),
    },
    {
      title: t("run.name"),
      order: "name",
      isTitle: true,
      cell: (run) => h("a", { class: "table-link", href: `/runs/${run.id}` }, data(run.name)),
    },
    { title: t("run.state"), className: "row-end", cell: (run) => stateCell(run, paces) },
    {
      title: t("runs.queue_pairs"),
      order: "queue_pairs",
      isNumber: true,
      cell: (run) => data(integer(run.brief?.queue_pairs ?? Number.NaN)),
    },
    { title: t("run.settings"), className: "row-end", cell: settingsCell },
    number("messages_s", "1/s"),
    number("hit_ratio", "share"),
    number("p99_ns", "ns"),
    { title: t("run.by"), cell: (run) => data(run.by, "breaks short") },
    { title: t("run.created"), order: "created", isNumber: true, cell: (run) => data(shortTime(run.created_ms)) },
  ];
}

/** The bar that counts the chosen runs and leads to their comparison. */
class Choice {
  constructor() {
    this.chosen = new Set();
    this.boxes = new Map();
    this.text = h("span", { class: "soft", role: "status" });
    this.button = button(t("runs.compare"), { press: () => go(`/compare?runs=${[...this.chosen].join(",")}`) }, icon("compare"));
    this.show();
  }

  box(run) {
    const control = h("input", {
      type: "checkbox",
      checked: this.chosen.has(run.id),
      "aria-label": t("runs.choose_one", { name: run.name }),
      translate: "no",
    });
    control.addEventListener("change", () => {
      this.chosen[control.checked ? "add" : "delete"](run.id);
      this.show();
    });
    this.boxes.set(run.id, control);
    this.show();
    return control;
  }

  show() {
    const isFull = this.chosen.size >= COMPARED_MAX;
    for (const box of this.boxes.values()) {
      box.disabled = isFull && !box.checked;
    }
    this.button.disabled = this.chosen.size < 2;
    this.text.textContent = count("runs.chosen", this.chosen.size);
  }
}

function none({ state, text }) {
  const isAll = state === "" && text.trim() === "";
  return empty({
    picture: "runs",
    title: t(isAll ? "runs.none.title" : "runs.none_found"),
    text: t(isAll ? "runs.none.text" : "runs.none_found.text"),
  });
}

/** The list: what it shows, in which order, and the runs so far. */
class List {
  constructor({ which, signal }) {
    this.which = which;
    this.signal = signal;
    this.shown = [];
    this.next = null;
    this.choice = new Choice();
    this.paces = new Map();
    /** Counts loads: an answer to an earlier one comes too late. */
    this.loads = 0;
    this.place = h("div");
    this.older = button(t("older"), { press: () => busy(this.older, () => this.more()).catch(sayError) });
    this.foot = h("div", { class: "panel-foot" }, this.older);
  }

  path(next) {
    const parts = parametersOf(this.which);
    parts.set("limit", String(PAGE));
    if (next !== null) {
      const isByNumber = this.which.order === "created" && !this.which.isRising;
      parts.set(isByNumber ? "before" : "offset", String(next));
    }
    return `/api/runs?${parts}`;
  }

  /** Shows other runs, or the same in another order. */
  async change(part) {
    Object.assign(this.which, part);
    rewriteQuery(parametersOf(this.which));
    await this.load();
  }

  async load() {
    this.loads += 1;
    const own = this.loads;
    const answer = await get(this.path(null), { signal: this.signal });
    if (own === this.loads) {
      this.shown = answer.runs;
      this.next = answer.next ?? null;
      this.draw();
    }
  }

  async more() {
    const own = this.loads;
    const answer = await get(this.path(this.next), { signal: this.signal });
    if (own === this.loads) {
      // Runs that have come since push others onto the next page.
      const known = new Set(this.shown.map(({ id }) => id));
      this.shown.push(...answer.runs.filter(({ id }) => !known.has(id)));
      this.next = answer.next ?? null;
      this.draw();
    }
  }

  /** Orders by a column, names rising and others falling; the second time the other way. */
  order(order) {
    const isSame = order === this.which.order;
    return this.change({ order, isRising: isSame ? !this.which.isRising : order === "name" });
  }

  draw() {
    const { order, isRising } = this.which;
    const { root } = table({
      caption: t("nav.runs"),
      className: "run-list dense",
      columns: columnsOf((run) => this.choice.box(run), this.paces),
      rows: this.shown,
      sort: { order, isRising, change: (one) => this.order(one).then(() => this.focusOrder(one), sayError) },
    });
    this.foot.hidden = this.next === null;
    fill(this.place, this.shown.length > 0 ? root : none(this.which));
  }

  focusOrder(order) {
    this.place.querySelector(`[data-order="${order}"]`)?.focus();
  }

  /** Reads the first page again while a run of the list has not ended. */
  follow() {
    const timer = setInterval(async () => {
      if (document.hidden || this.shown.every((run) => isEnded(run.state))) {
        return;
      }
      const own = this.loads;
      try {
        const { runs } = await get(this.path(null), { signal: this.signal });
        if (own !== this.loads) {
          return;
        }
        const fresh = new Map(runs.map((run) => [run.id, run]));
        const before = JSON.stringify(this.shown);
        this.shown = this.shown.map((run) => fresh.get(run.id) ?? run);
        if (JSON.stringify(this.shown) !== before && !holdsFocus()) {
          this.draw();
        }
      } catch {
        // The shell shows a lost server; the next try comes.
      }
    }, REFRESH_MS);
    this.signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }
}

/** Whether the focus is in the table, which drawing it anew would lose. */
function holdsFocus() {
  return document.activeElement?.closest(".run-list") !== null
    && document.activeElement?.closest(".run-list") !== undefined;
}

/** The controls above the list. */
function controls(list) {
  const { which } = list;
  let typed = null;
  const search = inputField({
    label: t("runs.search"),
    hideLabel: true,
    type: "search",
    value: which.text,
    attributes: { maxlength: "200", placeholder: t("runs.search"), autocomplete: "off", spellcheck: "false" },
    input: (text) => {
      clearTimeout(typed);
      typed = setTimeout(() => list.change({ text }).catch(sayError), TYPED_MS);
    },
  });
  const filter = selectField({
    label: t("run.state"),
    hideLabel: true,
    value: which.state,
    options: STATES.map((one) => [one, one ? t(`state.${one}`) : t("runs.all_states")]),
    change: (state) => list.change({ state }).catch(sayError),
  });
  const order = selectField({
    label: t("runs.order"),
    hideLabel: true,
    className: "narrow-only",
    value: which.order,
    options: Object.entries(ORDERS).map(([one, title]) => [one, t("runs.by_order", { name: t(title) })]),
    change: (one) => list.order(one).catch(sayError),
  });
  return [search.root, filter.root, order.root, list.choice.text, list.choice.button];
}

/** Shows the page. */
export async function render({ main, query, signal }) {
  const list = new List({ which: whichOf(query), signal });
  await list.load();
  const create = permits("operator")
    && h("a", { class: "button primary", href: "/runs/new", data: { tour: "new-run" } }, icon("plus"), t("runs.new"));
  fill(
    main,
    head(t("nav.runs"), { lead: t("runs.lead"), actions: create }),
    panel(t("runs.list"), [list.place, list.foot], { isFlush: true, actions: controls(list) }),
  );
  list.follow();
}
