// Events of runs, of the server, and the audit trail, newest first. Filters stand in the address,
// so that a view can be sent to others. Older entries are found by key, not by counting.

import { ApiError, errorText, get, permits } from "../api.js";
import { data, fill, h } from "../dom.js";
import { time } from "../format.js";
import { known, said, t } from "../i18n.js";
import { busy, button, inputField, selectField } from "../parts/field.js";
import { empty, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";
import { go } from "../router.js";

const PAGE = 100;
const LEVELS = ["info", "warning", "error"];
const KINDS = ["run", "audit", "server"];
const LEVEL_BADGES = { info: "", warning: "warn", error: "bad" };
const NAMES = ["from", "to", "level", "kind", "run", "text"];
/** Latest time of a browser, in milliseconds since 1970. */
const TIME_MAX = 8.64e15;
/** What a filter of an address may be, and what to write instead. */
const RULES = {
  from: [isTime, "problem.time"],
  to: [isTime, "problem.time"],
  level: [(text) => LEVELS.includes(text), "problem.choice"],
  kind: [(text) => KINDS.includes(text), "problem.choice"],
  run: [(text) => /^\d{1,15}$/.test(text), "problem.run"],
};

function isTime(text) {
  return /^\d{1,16}$/.test(text) && Number(text) <= TIME_MAX;
}

/** The problems of the filters of an address, by name. */
function problemsOf(query) {
  const list = Object.entries(RULES).filter(([name, [holds]]) => query.get(name) && !holds(query.get(name)));
  return new Map(list.map(([name, [, problem]]) => [name, t(problem)]));
}

/** A message in the language in use. The stored one, in which the filter searches, is its tip. */
function messageCell({ message }) {
  const shown = said(message) ?? message;
  return h("span", { translate: "no", title: shown === message ? undefined : message }, shown);
}

function columns() {
  return [
    { title: t("logs.time"), className: "nowrap", cell: (entry) => data(time(entry.time_ms)) },
    {
      title: t("logs.level"),
      cell: (entry) => h("span", { class: `badge ${LEVEL_BADGES[entry.level] ?? ""}` }, known(`level.${entry.level}`, entry.level)),
    },
    { title: t("logs.kind"), cell: (entry) => known(`kind.${entry.kind}`, entry.kind) },
    {
      title: t("logs.run"),
      cell: (entry) => (entry.run ? h("a", { href: `/runs/${entry.run}` }, data(`#${entry.run}`)) : ""),
    },
    { title: t("logs.user"), cell: (entry) => (entry.user ? data(entry.user, "breaks") : "") },
    { title: t("logs.message"), className: "message", cell: messageCell },
  ];
}

/** A time as an input of the browser shows it, in its time zone. */
function localTime(milliseconds) {
  const offset = new Date(milliseconds).getTimezoneOffset() * 60_000;
  return new Date(milliseconds - offset).toISOString().slice(0, 16);
}

function filters(query) {
  const dates = (name) => inputField({
    label: t(`logs.${name}`),
    type: "datetime-local",
    className: "date",
    value: isTime(query.get(name) ?? "") ? localTime(Number(query.get(name))) : "",
    attributes: { name },
  });
  const choice = (name, label, list, prefix) => {
    const one = selectField({
      label,
      value: query.get(name) ?? "",
      options: [["", t("logs.all")], ...list.map((value) => [value, t(`${prefix}.${value}`)])],
    });
    one.control.name = name;
    return one;
  };
  const kinds = permits("administrator") ? KINDS : KINDS.filter((kind) => kind !== "audit");
  return {
    text: inputField({
      label: t("logs.text"),
      type: "search",
      value: query.get("text") ?? "",
      className: "wide",
      attributes: { name: "text", maxlength: "200" },
    }),
    level: choice("level", t("logs.least"), LEVELS, "level"),
    kind: choice("kind", t("logs.kind"), kinds, "kind"),
    run: inputField({
      label: t("logs.run"),
      value: query.get("run") ?? "",
      attributes: { name: "run", inputmode: "numeric", maxlength: "15" },
    }),
    from: dates("from"),
    to: dates("to"),
  };
}

/** The query of the filters. */
function queryOf(fields) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const value = fields[name].control.value.trim();
    if (value === "") {
      continue;
    }
    const isOfTime = name === "from" || name === "to";
    query.set(name, isOfTime ? String(new Date(value).getTime()) : value);
  }
  return query;
}

/** Shows the page. */
export async function render({ main, query, signal, reload }) {
  const fields = filters(query);
  const path = (before) => {
    const parts = new URLSearchParams({ limit: String(PAGE) });
    for (const name of NAMES.filter((one) => query.get(one))) {
      parts.set(name, query.get(name));
    }
    if (before !== null) {
      parts.set("before", String(before));
    }
    return `/api/logs?${parts}`;
  };
  const problems = problemsOf(query);
  let answer = { entries: [], next: null };
  let problem = null;
  if (problems.size === 0) {
    try {
      answer = await get(path(null), { signal });
    } catch (error) {
      // A filter that the server refuses is changed here, beside what it says.
      if (!(error instanceof ApiError) || !(error.status === 400 || error.status === 422)) {
        throw error;
      }
      if (error.field in fields) {
        problems.set(error.field, errorText(error));
      } else {
        problem = errorText(error);
      }
    }
  }
  for (const [name, text] of problems) {
    fields[name].setProblem(text);
  }
  const isWrong = problems.size > 0 || problem !== null;
  const { root, add } = table({ caption: t("nav.logs"), className: "log-table", columns: columns(), rows: answer.entries });
  let { next } = answer;
  const older = button(t("older"), { press: () => busy(older, more).catch(sayError) });
  const foot = h("div", { class: "panel-foot", hidden: !next }, older);
  async function more() {
    const page = await get(path(next), { signal });
    add(page.entries);
    ({ next } = page);
    foot.hidden = !next;
  }
  const form = h(
    "form",
    { class: "panel panel-body", role: "search", data: { tour: "filters" } },
    h("div", { class: "filters" }, Object.values(fields).map((one) => one.root)),
    problem && h("p", { class: "problem", role: "alert", translate: "no" }, problem),
    h(
      "div",
      { class: "form-actions" },
      button(t("logs.clear"), { kind: "quiet", press: () => go("/logs") }),
      button(t("logs.apply"), { kind: "primary", type: "submit" }),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = queryOf(fields).toString();
    go(text ? `/logs?${text}` : "/logs").catch(sayError);
  });
  const list = answer.entries.length > 0 ? [root, foot] : empty({
    picture: "logs",
    title: t(isWrong ? "logs.wrong" : "logs.none"),
    text: t(isWrong ? "logs.wrong.text" : "logs.none.text"),
  });
  fill(
    main,
    head(t("nav.logs"), { lead: t("logs.lead"), actions: button(t("refresh"), { press: reload }) }),
    h("div", { class: "stack" }, form, panel(t("logs.entries"), list, { isFlush: true })),
  );
  if (problems.size > 0) {
    fields[[...problems.keys()][0]].control.focus();
  }
}
