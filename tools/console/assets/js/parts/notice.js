// Notices: short ones that go away, failures of a page with a way to try again, and empty states.

import { errorText } from "../api.js";
import { h, icon } from "../dom.js";
import { t } from "../i18n.js";

const SHOWN_MS = 6000;
let region = null;

/** The region in which short notices appear and are read out. */
export function notices() {
  region = h("div", { class: "notices", role: "status", "aria-live": "polite" });
  return region;
}

/** Shows a short notice. */
export function say(text, { bad = false } = {}) {
  if (region === null) {
    return;
  }
  const close = h(
    "button",
    { class: "button quiet compact", type: "button", "aria-label": t("close") },
    icon("close"),
  );
  const toast = h("div", { class: bad ? "toast bad" : "toast" }, h("span", { translate: "no" }, text), close);
  close.addEventListener("click", () => toast.remove());
  region.append(toast);
  setTimeout(() => toast.remove(), SHOWN_MS);
}

/** Removes all short notices: they are about the page that was shown until now. */
export function clearNotices() {
  region?.replaceChildren();
}

/** Shows an error as a short notice. A session that ended has its own page. */
export function sayError(error) {
  if (error.name !== "AbortError" && error.status !== 401) {
    say(errorText(error), { bad: true });
  }
}

/** A failure and a way on: a button to try again, unless another is given. */
export function failure(text, again, way) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    icon("warning"),
    h("p", { translate: "no" }, text),
    way ?? h("button", { class: "button", type: "button", on: { click: again } }, t("again")),
  );
}

/** What a list shows that has nothing yet. */
export function empty({ picture, title, text, actions = [] }) {
  return h(
    "div",
    { class: "empty" },
    icon(picture),
    h("h2", null, title),
    h("p", null, text),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

/** What a page shows while it loads. */
export function loading() {
  return h("p", { class: "loading", role: "status" }, t("loading"));
}
