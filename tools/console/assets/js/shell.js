// What stands around every page: navigation, language, theme, sign-out, the notice of a lost
// server, and the region in which notices are read out.

import { permits, session, signOut } from "./api.js";
import { data, h, icon } from "./dom.js";
import { t } from "./i18n.js";
import { sayError } from "./parts/notice.js";
import { preferences } from "./preferences.js";
import { startTour } from "./tour.js";

const PAGES = [
  ["/", "overview"],
  ["/fit", "fit"],
  ["/runs", "runs"],
  ["/compare", "compare"],
  ["/data", "data"],
  ["/logs", "logs"],
  ["/live", "live"],
  ["/users", "users", "administrator"],
];

function entry([path, name]) {
  return h(
    "li",
    null,
    h("a", { href: path, data: { nav: name } }, icon(name), t(`nav.${name}`)),
  );
}

function foot({ again, signedOut, frame }) {
  const leave = async () => {
    try {
      await signOut();
    } catch (error) {
      // The session goes on, and who leaves the machine must know it.
      sayError(error);
      return;
    }
    history.replaceState(null, "", "/");
    signedOut();
  };
  return h(
    "div",
    { class: "menu-foot" },
    h(
      "ul",
      null,
      h("li", null, h(
        "button",
        { type: "button", data: { nav: "tour" }, on: { click: () => startTour(frame) } },
        icon("tour"),
        t("nav.tour"),
      )),
      h("li", null, h(
        "a",
        { href: "/account", data: { nav: "account" } },
        icon("account"),
        h("span", null, t("nav.account"), " ", data(session.user.name, "soft breaks")),
      )),
      h("li", null, h(
        "button",
        { type: "button", data: { nav: "leave" }, on: { click: leave } },
        icon("leave"),
        t("nav.sign_out"),
      )),
    ),
    preferences(again),
  );
}

function brand() {
  return h("a", { class: "brand", href: "/" }, h("img", { src: "/icon.svg", alt: "" }), t("brand"));
}

/** The frame of all pages: its root, the place of the page, and the notice of a lost server. */
export function shell({ again, signedOut }) {
  const main = h("main", { id: "main" });
  // What is written into the page is lost when the page is shown anew.
  const frame = { main, root: null, offline: null, isTouched: false };
  main.addEventListener("input", () => {
    frame.isTouched = true;
  });
  frame.offline = h(
    "div",
    { class: "notice bad offline", role: "alert", hidden: true },
    icon("warning"),
    h("p", null, t("offline")),
  );
  const toggle = h(
    "button",
    { class: "button quiet", type: "button", "aria-expanded": "false", "aria-controls": "side" },
    icon("menu"),
    t("nav.menu"),
  );
  const side = h(
    "div",
    { class: "side", id: "side" },
    brand(),
    h(
      "nav",
      { class: "menu", "aria-label": t("nav.label") },
      h("ul", null, PAGES.filter(([, , role]) => permits(role ?? "viewer")).map(entry)),
      foot({ again, signedOut, frame }),
    ),
  );
  const content = h("div", null, main);
  frame.root = h(
    "div",
    { class: "shell" },
    h("a", { class: "skip", href: "#main", on: { click: (event) => skip(event, main) } }, t("nav.skip")),
    h("header", { class: "top" }, brand(), toggle),
    side,
    content,
  );
  frame.setMenu = (isOpen) => {
    frame.root.classList.toggle("menu-is-open", isOpen);
    toggle.setAttribute("aria-expanded", String(isOpen));
  };
  frame.isMenuOpen = () => frame.root.classList.contains("menu-is-open");
  toggle.addEventListener("click", () => frame.setMenu(!frame.isMenuOpen()));
  frame.root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && frame.isMenuOpen()) {
      frame.setMenu(false);
      toggle.focus();
    }
  });
  content.prepend(frame.offline);
  return frame;
}

function skip(event, main) {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
}

/** Marks the entry of the current page, and closes the menu of narrow screens. */
export function markCurrent(frame, path) {
  frame.setMenu(false);
  for (const link of frame.root.querySelectorAll(".menu a")) {
    const own = link.getAttribute("href");
    const isCurrent = own === "/" ? path === "/" : path === own || path.startsWith(`${own}/`);
    if (isCurrent) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}
