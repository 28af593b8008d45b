// What fits: a search for how many queue pairs or regions a card serves at its rate, with which
// policy, and why no more. The page has the form and the searches; a search has its answers, the
// curves of the policies side by side, and a table from which any point opens as a run.

import { ApiError, errorText, get, permits, post, remove } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { integer, shortTime, time, withUnit } from "../format.js";
import { known, t } from "../i18n.js";
import { Chart, ChartGroup } from "../parts/chart.js";
import { busy, button, field, inputField, selectField } from "../parts/field.js";
import { empty, say, sayError } from "../parts/notice.js";
import { CHART_MIN, figures, head, panel, spread } from "../parts/page.js";
import { Form, reveal } from "../parts/settings.js";
import { table } from "../parts/table.js";
import { go } from "../router.js";
import { Pace, isEnded, stateBadge } from "../run_data.js";

const POLL_MS = 1000;
/** The settings of card and workload that decide; others have their defaults. Of a link, all. */
const ASKED = new Set([
  "card.messages_s",
  "card.card_entries",
  "card.staging_entries",
  "card.cxl_pages",
  "card.cxl.latency_ns",
  "card.cxl.bytes_s",
  "card.cxl.transfers_max",
  "card.host.latency_ns",
  "card.host.bytes_s",
  "card.host.transfers_max",
  "card.host_busy",
  "workload.pattern.name",
  "workload.pattern.exponent",
  "workload.pattern.period",
  "workload.pattern.burst",
  "workload.pattern.length",
  "workload.population.queue_pairs",
  "workload.population.regions",
  "workload.population.completion_queues",
]);
const POLICIES = ["adaptive", "fixed", "lru", "fifo", "lfu", "clock", "sieve", "s3-fifo", "hybrid"];
const CHOSEN = new Set(["adaptive", "fixed", "lru"]);
const OBJECTS = ["queue_pairs", "regions"];
const FORMATS = ["csv", "json"];
/** The most objects that a card can name, which a search ends with. */
const COUNT_MAX = 65_536;
/** A share of the pages behind CXL from which on they are full. */
const FULL = 0.9;
/** The charts; `interval` has the limits of a value, of which there are none after one simulation. */
const CHARTS = [
  {
    key: "rate",
    unit: "1/s",
    value: (point) => point.messages_s.mean,
    interval: ({ messages_s: { low, high, runs } }) => (runs > 1 ? [low, high] : undefined),
  },
  { key: "hits", unit: "share", limits: [0, 1], value: (point) => point.hit_ratio },
  { key: "load", unit: "share", limits: [0, 1], value: (point) => Math.max(point.host_load, point.cxl_load) },
];

function policyName(policy) {
  return known(`fit.policy.${policy}`, null) ?? t("fit.policy.plain", { policy: known(`choice.${policy}`, policy) });
}

function objectName(object) {
  return t(`fit.object.${object}`);
}

/** The card of a search in a few words. */
function subject({ settings }) {
  const { card, workload } = settings.base;
  return t("fit.subject", {
    object: objectName(settings.object),
    places: integer(card.card_entries),
    pages: integer(card.cxl_pages),
    pattern: known(`choice.${workload.pattern.name}`, workload.pattern.name),
    target: withUnit(settings.kept * card.messages_s, "1/s"),
  });
}

/** Why no more fit: a sentence. */
function reason(search, curve) {
  const { object, base } = search.settings;
  const { slows, saturated } = curve.answer;
  const point = curve.points.find(({ count }) => count === slows);
  if (!point) {
    const most = curve.points.at(-1)?.count ?? 0;
    const isAll = most === COUNT_MAX;
    return t(isAll ? "fit.reason.none" : "fit.reason.so_far", { object: objectName(object), most: integer(most) });
  }
  const share = (value) => withUnit(value, "share");
  const full = t(point.card_full < 0.5 ? "fit.reason.empty" : "fit.reason.full", {
    places: integer(base.card.card_entries),
    full: share(point.card_full),
  });
  const pages = point.cxl_full < FULL ? "" : t("fit.reason.pages", {
    pages: integer(base.card.cxl_pages),
    full: share(point.cxl_full),
  });
  const wait = t(`fit.reason.${saturated}`, {
    load: share(saturated === "cxl_link" ? point.cxl_load : Math.max(point.host_load, point.cxl_load)),
    transfers: integer(base.card.host.transfers_max),
    latency: withUnit(base.card.host.latency_ns / (1 - base.card.host_busy), "ns"),
  });
  return t("fit.reason", {
    count: integer(point.count),
    object: objectName(object),
    table: full,
    pages,
    elsewhere: share(point.cxl_share + point.host_share),
    wait,
  });
}

function answers(search) {
  const list = search.curves.map((curve) => {
    const { fits, surely } = curve.answer;
    const isSure = surely === fits || curve.answer.slows === null;
    return {
      label: policyName(curve.policy),
      value: fits,
      unit: "exact",
      note: isSure ? t("fit.sure") : t("fit.unsure", { count: integer(surely) }),
    };
  });
  return panel(t("fit.answer", { object: objectName(search.settings.object) }), [
    figures(list),
    h("ul", { class: "reasons" }, search.curves.map((curve) => h(
      "li",
      null,
      h("strong", null, policyName(curve.policy)),
      " ",
      h("span", { data: { policy: curve.policy } }, reason(search, curve)),
    ))),
  ]);
}

/** The counts of all curves. */
function countsOf(curves) {
  const all = curves.flatMap(({ points }) => points.map(({ count }) => count));
  return [...new Set(all)].sort((one, other) => one - other);
}

/** The charts of a search, one line a policy. */
class Curves {
  constructor(search, signal) {
    const group = new ChartGroup();
    const label = objectName(search.settings.object);
    this.list = CHARTS.map(({ key, unit, limits, value, interval }) => ({
      value,
      interval,
      chart: new Chart({
        title: t(`fit.chart.${key}`),
        file: `fit-${search.id}-${key}`,
        unit,
        limits,
        x: { label, unit: "exact", isLog: true },
        series: search.settings.policies.map((policy, dash) => ({ label: policyName(policy), dash })),
        group,
      }, signal),
    }));
    this.root = spread(h("div", { class: "charts" }, this.list.map(({ chart }) => chart.root)), CHART_MIN);
  }

  set(curves) {
    const counts = countsOf(curves);
    for (const { chart, value, interval } of this.list) {
      const listsOf = (figure) => curves.map(({ points }) => {
        const figures = new Map(points.map((point) => [point.count, figure(point)]));
        return counts.map((count) => figures.get(count));
      });
      chart.set([counts, ...listsOf(value)], interval ? listsOf(interval) : []);
    }
  }
}

function rateCell(search, curve, count) {
  const point = curve.points.find((one) => one.count === count);
  if (!point) {
    return data("");
  }
  const { mean, high, runs } = point.messages_s;
  const text = [
    withUnit(mean, "1/s"),
    runs > 1 && `±${withUnit((high - mean) / mean, "share")}`,
    !point.is_steady && "*",
  ].filter(Boolean).join(" ");
  if (!permits("operator")) {
    return data(text);
  }
  return h("a", {
    class: "table-link",
    href: `/runs/new?fit=${search.id}&policy=${curve.policy}&count=${count}`,
    title: t("fit.open"),
  }, data(text));
}

function pointTable(search) {
  const columns = [
    { title: objectName(search.settings.object), isTitle: true, isNumber: true, cell: (count) => data(integer(count)) },
    ...search.curves.map((curve) => ({
      title: policyName(curve.policy),
      isNumber: true,
      cell: (count) => rateCell(search, curve, count),
    })),
  ];
  const rows = countsOf(search.curves);
  return panel(t("fit.points"), [
    h("p", { class: "panel-body soft" }, t("fit.points.text")),
    table({ caption: t("fit.points"), className: "dense", columns, rows }).root,
  ], { isFlush: true });
}

function progressPanel(search, pace) {
  const { done, total } = search.progress;
  const share = total > 0 ? done / total : 0;
  return h(
    "div",
    { class: "panel panel-body" },
    h(
      "div",
      { class: "progress-words soft" },
      h("p", { role: "status" }, search.state === "queued"
        ? t("fit.waits")
        : t("fit.runs", { done: integer(done), total: integer(total) })),
      h("span", null, pace.leftText(share)),
    ),
    h(
      "div",
      { class: "progress-line" },
      h("progress", { value: share, max: "1", "aria-label": t("run.progress") }),
      data(withUnit(share, "share")),
    ),
  );
}

function exports(search) {
  return FORMATS.map((format) => h(
    "a",
    {
      class: "button compact",
      href: `/api/fits/${search.id}/export?format=${format}`,
      download: "",
      "aria-label": t("run.export", { format: format.toUpperCase() }),
    },
    icon("download"),
    data(format.toUpperCase()),
  ));
}

function actions(search, reload) {
  const may = permits("operator");
  const isOver = isEnded(search.state);
  const path = `/api/fits/${search.id}`;
  const cancel = () => post(`${path}/cancel`, {}).then(() => reload(), sayError);
  const drop = () => remove(path).then(() => go("/fit")).then(() => say(t("fit.deleted")), sayError);
  return [
    ...exports(search),
    may && !isOver && button(t("fit.cancel"), { kind: "danger", press: cancel }),
    may && isOver && button(t("delete"), { kind: "quiet", press: drop }),
    h("a", { class: "button", href: "/fit" }, t("fit.another")),
  ].filter(Boolean);
}

/** Shows a search, and follows it to its end. */
async function renderSearch({ main, parts, signal, reload }) {
  const path = `/api/fits/${parts[0]}`;
  let search = await get(path, { signal });
  const curves = new Curves(search, signal);
  const pace = new Pace();
  const above = h("div", { class: "stack" });
  const below = h("div", { class: "stack" });
  const show = () => {
    const list = search.curves ?? [];
    const hasPoints = list.some(({ points }) => points.length > 0);
    fill(above, !isEnded(search.state) && progressPanel(search, pace), hasPoints && answers(search));
    fill(below, hasPoints && pointTable(search));
    curves.set(list);
  };
  const meta = h(
    "div",
    { class: "meta" },
    stateBadge(search.state),
    h("span", null, `${t("run.by")} `, data(search.by, "breaks")),
    h("span", null, `${t("run.created")} `, data(time(search.created_ms))),
  );
  fill(
    main,
    head(t("nav.fit"), { lead: subject(search), below: meta, actions: actions(search, reload) }),
    h("div", { class: "stack" }, above, curves.root, below),
  );
  show();
  const follow = async () => {
    try {
      const { state } = search;
      search = await get(path, { signal });
      if (search.state !== state) {
        reload();
        return;
      }
      show();
    } catch (error) {
      if (signal.aborted || error.status === 401 || error.status === 404) {
        return;
      }
    }
    setTimeout(follow, POLL_MS);
  };
  if (!isEnded(search.state)) {
    setTimeout(follow, POLL_MS);
  }
}

function searchList(fits) {
  if (fits.length === 0) {
    return empty({ picture: "fit", title: t("fit.none"), text: t("fit.none.text") });
  }
  return table({
    caption: t("fit.searches"),
    className: "dense",
    rows: fits,
    columns: [
      {
        title: t("fit.search"),
        isTitle: true,
        cell: (one) => h("a", { class: "table-link", href: `/fit/${one.id}` }, subject(one)),
      },
      { title: t("run.state"), cell: (one) => stateBadge(one.state) },
      ...["adaptive", "fixed"].map((policy) => ({
        title: policyName(policy),
        isNumber: true,
        cell: (one) => {
          const curve = (one.curves ?? []).find((found) => found.policy === policy);
          return data(curve ? integer(curve.answer.fits) : "–");
        },
      })),
      { title: t("run.created"), isNumber: true, cell: (one) => data(shortTime(one.created_ms)) },
    ],
  }).root;
}

/** Narrowest place of a policy, with the gap beside it, in pixels. */
const POLICY_MIN = 250;

/** The form of a search; sends it and goes to it. */
function searchForm(description) {
  const fields = description.fields.filter(({ path }) => ASKED.has(path));
  const form = new Form({ fields }, {});
  const setting = (path) => form.settings.get(path).root;
  const showObject = (object) => {
    for (const one of OBJECTS) {
      setting(`workload.population.${one}`).hidden = one === object;
    }
  };
  const object = selectField({
    label: t("fit.of"),
    options: OBJECTS.map((one) => [one, objectName(one)]),
    value: OBJECTS[0],
    change: showObject,
  });
  const kept = inputField({ label: t("fit.kept"), hint: t("fit.kept.text"), unit: "%", value: "95", attributes: { inputmode: "decimal" } });
  const repeats = inputField({ label: t("fit.repeats"), hint: t("fit.repeats.text"), value: "3", attributes: { inputmode: "numeric" } });
  const policies = POLICIES.map((policy) => ({
    policy,
    ...field({ label: policyName(policy), control: h("input", { type: "checkbox", checked: CHOSEN.has(policy) }) }),
  }));
  const summary = h("p", { class: "problem", role: "alert", tabindex: "-1", hidden: true, translate: "no" });
  const send = button(t("fit.start"), { kind: "primary", type: "submit" });
  const complain = (text) => {
    summary.textContent = text;
    summary.hidden = false;
    summary.focus();
  };
  const showError = (error) => {
    const name = error instanceof ApiError && error.field ? error.field.replace(/^settings\./, "") : null;
    const found = form.settings.get(name);
    const own = { kept, repeats }[name];
    if (found) {
      found.field.setProblem(errorText(error));
      reveal(found);
    } else if (own) {
      own.setProblem(errorText(error));
      own.control.focus();
    } else {
      complain(errorText(error));
    }
  };
  const root = h(
    "form",
    { class: "stack", novalidate: true },
    h("div", { class: "panel panel-body fields" }, object.root, kept.root, repeats.root),
    h(
      "fieldset",
      { class: "panel" },
      h("legend", { class: "hidden-text" }, t("fit.policies")),
      h("div", { class: "panel-head" }, h("h2", null, t("fit.policies")), h("span", { class: "hint" }, t("fit.policies.text"))),
      spread(h("div", { class: "panel-body policies" }, policies.map((one) => one.root)), POLICY_MIN),
    ),
    form.groupsRoot(),
    h("div", { class: "submit-bar" }, summary, h("div", { class: "actions" }, send)),
  );
  root.addEventListener("submit", async (event) => {
    event.preventDefault();
    summary.hidden = true;
    kept.setProblem(null);
    repeats.setProblem(null);
    const wrong = form.firstWrong();
    const chosen = policies.filter(({ control }) => control.checked).map(({ policy }) => policy);
    if (wrong) {
      reveal(wrong);
      return;
    }
    if (chosen.length === 0) {
      complain(t("fit.no_policy"));
      return;
    }
    const [share, number] = [kept, repeats].map(({ control }) => Number(control.value));
    if (!(share >= 1 && share <= 100)) {
      kept.setProblem(t("problem.range", { minimum: "1", maximum: "100" }));
      kept.control.focus();
      return;
    }
    if (!Number.isInteger(number) || number < 1 || number > 100) {
      repeats.setProblem(t("problem.range", { minimum: "1", maximum: "100" }));
      repeats.control.focus();
      return;
    }
    const body = { object: object.control.value, kept: share / 100, repeats: number, policies: chosen, settings: form.nested() };
    try {
      const search = await busy(send, () => post("/api/fits", body));
      await go(`/fit/${search.id}`);
    } catch (error) {
      showError(error);
    }
  });
  showObject(OBJECTS[0]);
  return root;
}

/** Shows the page, or one search. */
export async function render(context) {
  const { main, parts, signal } = context;
  if (parts.length > 0) {
    await renderSearch(context);
    return;
  }
  const [description, { fits }] = await Promise.all([get("/api/form", { signal }), get("/api/fits", { signal })]);
  fill(
    main,
    head(t("nav.fit"), { lead: t("fit.lead") }),
    h(
      "div",
      { class: "stack" },
      permits("operator") && searchForm(description),
      panel(t("fit.searches"), searchList(fits), { isFlush: true }),
    ),
  );
}
