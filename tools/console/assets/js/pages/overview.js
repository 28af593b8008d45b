// The first page: what runs now, what ran last, and where to begin.

import { get, permits } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { shortTime, withUnit } from "../format.js";
import { t } from "../i18n.js";
import { empty } from "../parts/notice.js";
import { figures, head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";
import { figureOf, stateBadges } from "../run_data.js";

const RECENT = 6;

function newRun() {
  return permits("operator")
    ? h("a", { class: "button primary", href: "/runs/new", data: { tour: "new-run" } }, icon("plus"), t("runs.new"))
    : null;
}

function recent(runs) {
  const { root } = table({
    caption: t("overview.recent"),
    className: "recent dense",
    rows: runs.slice(0, RECENT),
    columns: [
      {
        title: t("run.name"),
        isTitle: true,
        cell: (run) => h("a", { class: "table-link", href: `/runs/${run.id}` }, data(run.name)),
      },
      { title: t("run.state"), className: "row-end", cell: stateBadges },
      { title: t("column.messages_s"), isNumber: true, cell: (run) => figureCell(run, "messages_s", "1/s") },
      { title: t("column.hit_ratio"), isNumber: true, cell: (run) => figureCell(run, "hit_ratio", "share") },
      { title: t("column.p99_ns"), isNumber: true, cell: (run) => figureCell(run, "p99_ns", "ns") },
      { title: t("run.created"), isNumber: true, cell: (run) => data(shortTime(run.created_ms)) },
    ],
  });
  return root;
}

function figureCell(run, key, unit) {
  return data(withUnit(figureOf(run, key) ?? Number.NaN, unit));
}

function beginning() {
  const steps = ["run", "watch", "compare", "data"];
  return panel(
    t("overview.begin"),
    h("ol", { class: "steps" }, steps.map((step) => h(
      "li",
      null,
      h("div", null, h("h3", null, t(`overview.${step}.title`)), h("p", { class: "soft" }, t(`overview.${step}.text`))),
    ))),
  );
}

/** Shows the page. */
export async function render({ main, signal }) {
  const [{ runs }, live, datasets] = await Promise.all([
    get("/api/runs?limit=100", { signal }),
    get("/api/live", { signal }).catch(() => ({ sources: [] })),
    get("/api/datasets", { signal }).catch(() => ({ datasets: [] })),
  ]);
  const numberOf = (...states) => runs.filter(({ state }) => states.includes(state)).length;
  const list = runs.length > 0
    ? recent(runs)
    : empty({ picture: "runs", title: t("runs.none.title"), text: t("runs.none.text"), actions: [newRun()].filter(Boolean) });
  fill(
    main,
    head(t("nav.overview"), { lead: t("overview.lead"), actions: newRun() }),
    h(
      "div",
      { class: "stack" },
      figures([
        { label: t("overview.running"), value: numberOf("running"), unit: "exact" },
        { label: t("overview.queued"), value: numberOf("queued"), unit: "exact" },
        { label: t("overview.done"), value: numberOf("done"), unit: "exact" },
        { label: t("overview.datasets"), value: datasets.datasets.length, unit: "exact" },
        { label: t("overview.sources"), value: live.sources.length, unit: "exact" },
      ]),
      panel(t("overview.recent"), list, {
        isFlush: true,
        actions: runs.length > 0 && h("a", { href: "/runs" }, t("overview.all_runs")),
      }),
      beginning(),
    ),
  );
}
