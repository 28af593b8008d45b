// All runs, newest first: filter by state, choose up to four to compare, load older ones.

import { get, permits } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { shortTime, withUnit } from "../format.js";
import { count, t } from "../i18n.js";
import { busy, button, selectField } from "../parts/field.js";
import { empty, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";
import { go } from "../router.js";
import { COMPARED_MAX, figureOf, isEnded, shareOf, stateBadge, verdictBadge } from "../run_data.js";

const PAGE = 25;
const REFRESH_MS = 2000;
const STATES = ["", "queued", "running", "done", "cancelled", "failed", "interrupted"];

function stateCell(run) {
  if (run.state !== "running") {
    return [stateBadge(run.state), " ", verdictBadge(run.summary?.verdict)];
  }
  const share = shareOf(run.progress);
  return h(
    "span",
    { class: "progress-line" },
    h("progress", { value: share, max: "1", "aria-label": t("run.progress") }),
    data(withUnit(share, "share")),
  );
}

function columnsOf(choose) {
  const number = (key, unit) => ({
    title: t(`column.${key}`),
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
      isTitle: true,
      cell: (run) => h("a", { class: "table-link", href: `/runs/${run.id}` }, data(run.name)),
    },
    { title: t("run.state"), cell: stateCell },
    number("messages_s", "1/s"),
    number("hit_ratio", "share"),
    number("p99_ns", "ns"),
    { title: t("run.by"), cell: (run) => data(run.by, "breaks") },
    { title: t("run.created"), isNumber: true, cell: (run) => data(shortTime(run.created_ms)) },
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

function none(state) {
  const isAll = state === "";
  return empty({
    picture: "runs",
    title: t(isAll ? "runs.none.title" : "runs.none_of_state"),
    text: t(isAll ? "runs.none.text" : "runs.none_of_state.text"),
  });
}

/** Shows the page. */
export async function render({ main, query, signal, reload }) {
  const state = query.get("state") ?? "";
  const choice = new Choice();
  const place = h("div");
  let next = null;
  const path = (before) => {
    const parts = new URLSearchParams({ limit: String(PAGE) });
    if (state) {
      parts.set("state", state);
    }
    if (before) {
      parts.set("before", String(before));
    }
    return `/api/runs?${parts}`;
  };
  const older = button(t("older"), { press: () => busy(older, more).catch(sayError) });
  const shown = [];
  const draw = () => {
    const { root } = table({
      caption: t("nav.runs"),
      className: "run-list dense",
      columns: columnsOf((run) => choice.box(run)),
      rows: shown,
    });
    older.hidden = next === null;
    fill(place, shown.length > 0 ? root : none(state));
  };
  async function more() {
    const answer = await get(path(next), { signal });
    shown.push(...answer.runs);
    next = answer.next ?? null;
    draw();
  }
  await more();
  const filter = selectField({
    label: t("run.state"),
    hideLabel: true,
    value: state,
    options: STATES.map((one) => [one, one ? t(`state.${one}`) : t("runs.all_states")]),
    change: (one) => go(one ? `/runs?state=${one}` : "/runs"),
  });
  const create = permits("operator")
    && h("a", { class: "button primary", href: "/runs/new", data: { tour: "new-run" } }, icon("plus"), t("runs.new"));
  fill(
    main,
    head(t("nav.runs"), { lead: t("runs.lead"), actions: create }),
    panel(t("runs.list"), [place, h("div", { class: "panel-foot", hidden: false }, older)], {
      isFlush: true,
      actions: [filter.root, choice.text, choice.button],
    }),
  );
  main.querySelector(".panel-foot").hidden = next === null;
  refresh({ shown, draw, path, signal, reload });
}

/** Reads the first page again while a run of it has not ended. */
function refresh({ shown, draw, path, signal }) {
  const timer = setInterval(async () => {
    if (document.hidden || shown.every((run) => isEnded(run.state))) {
      return;
    }
    try {
      const { runs } = await get(path(null), { signal });
      const fresh = new Map(runs.map((run) => [run.id, run]));
      const before = JSON.stringify(shown);
      shown.forEach((run, index) => {
        shown[index] = fresh.get(run.id) ?? run;
      });
      if (JSON.stringify(shown) !== before && !holdsFocus()) {
        draw();
      }
    } catch {
      // The shell shows a lost server; the next try comes.
    }
  }, REFRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
}

/** Whether the focus is in the table, which drawing it anew would lose. */
function holdsFocus() {
  return document.activeElement?.closest(".run-list") !== null
    && document.activeElement?.closest(".run-list") !== undefined;
}
