// The tour for a first visitor: steps that name a page and an element on it, in a card beside a
// ring around the element. It can be skipped at any moment, works by keyboard (arrows, Escape),
// keeps the focus in its card, and is offered once a browser. A page that has nothing to show yet
// is left out. A user who may start runs can have two examples for the pages of runs.

import { get, permits } from "./api.js";
import { h, uniqueId } from "./dom.js";
import { runExamples } from "./examples.js";
import { t } from "./i18n.js";
import { busy, button } from "./parts/field.js";
import { sayError } from "./parts/notice.js";
import { go } from "./router.js";

const KEY = "farcore.tour";
const GAP = 12;
const WAIT_MS = 3000;

/** Path, element, name of the texts, the role that the page needs, and what must be there. */
const STEPS = [
  ["/", "h1", "welcome"],
  ["/", ".menu ul", "menu"],
  ["/runs/new", "[data-tour='presets']", "presets", "operator"],
  ["/runs/new", "[data-tour='start']", "start", "operator"],
  ["/runs", "main .panel", "runs", "viewer", ({ runs }) => runs.length > 0],
  [({ runs }) => `/compare?runs=${runs.slice(0, 2).join(",")}`, "main .compare-table", "compare", "viewer", ({ runs }) => runs.length > 1],
  ["/data", "main .panel", "data", "viewer", ({ datasets }) => datasets > 0 || permits("operator")],
  ["/logs", "[data-tour='filters']", "logs"],
  ["/live", ".source-tabs", "live", "viewer", ({ sources }) => sources > 0],
  ["/account", "main .panel", "account"],
];

/** What the pages have to show: numbers of runs that were simulated, of data sets, of sources. */
async function contents() {
  const none = () => ({ runs: [], datasets: [], sources: [] });
  const [{ runs }, { datasets }, { sources }] = await Promise.all(
    ["/api/runs?limit=50", "/api/datasets", "/api/live"].map((path) => get(path).catch(none)),
  );
  const simulated = runs.filter(({ state }) => state === "done").map(({ id }) => id);
  return { runs: simulated, datasets: datasets.length, sources: sources.length };
}

function stepsFor(there) {
  return STEPS.filter(([, , , role, holds]) => permits(role ?? "viewer") && (!holds || holds(there)));
}

let isOpen = false;

function remembered() {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    // Without a memory it would be offered on every page.
    return true;
  }
}

function remember() {
  try {
    localStorage.setItem(KEY, "seen");
  } catch {
    // It may be offered again.
  }
}

/** Offers the tour to who has not seen it. */
export function offerTour(frame) {
  if (!isOpen && location.pathname === "/" && !remembered()) {
    startTour(frame);
  }
}

/** The element, once its page is there; nothing if it does not come. */
function appear(selector) {
  const end = Date.now() + WAIT_MS;
  return new Promise((resolve) => {
    const look = () => {
      const found = [...document.querySelectorAll(selector)].find((one) => one.getClientRects().length > 0);
      if (found || Date.now() > end) {
        resolve(found ?? null);
      } else {
        requestAnimationFrame(look);
      }
    };
    look();
  });
}

/** Puts ring and card beside an element, the card where there is room. */
function place(ring, card, target) {
  const box = target.getBoundingClientRect();
  const top = box.top + scrollY;
  const left = box.left + scrollX;
  const height = Math.min(box.height, innerHeight * 0.45);
  Object.assign(ring.style, {
    top: `${top - 5}px`,
    left: `${left - 5}px`,
    width: `${box.width + 10}px`,
    height: `${height + 10}px`,
  });
  const below = top + height + GAP + 5;
  const hasRoom = below + card.offsetHeight < scrollY + innerHeight;
  const above = Math.max(scrollY + GAP, top - card.offsetHeight - GAP - 5);
  const furthest = innerWidth - card.offsetWidth - GAP;
  Object.assign(card.style, {
    top: `${hasRoom ? below : above}px`,
    left: `${Math.max(GAP, Math.min(left, furthest))}px`,
  });
}

/** Starts the tour at its first step. */
export async function startTour(frame) {
  if (isOpen) {
    return;
  }
  isOpen = true;
  let there = await contents();
  let steps = stepsFor(there);
  const ring = h("div", { class: "tour-ring" });
  const title = h("h2", { id: uniqueId("tour"), tabindex: "-1" });
  const text = h("p", { id: uniqueId("tour") });
  const where = h("span", { class: "soft small" });
  const back = button(t("tour.back"), { press: () => show(index - 1) });
  const next = button(t("tour.next"), { kind: "primary", press: () => show(index + 1) });
  const skip = button(t("tour.skip"), { kind: "quiet compact", press: () => end() });
  const examples = button(t("tour.examples"), {
    kind: "compact",
    press: () => busy(examples, async () => {
      examples.textContent = t("tour.examples.run");
      await runExamples(leave.signal);
      there = await contents();
      steps = stepsFor(there);
      examples.hidden = true;
      if (isOpen) {
        await show(index);
      }
    }).catch((error) => {
      examples.textContent = t("tour.examples");
      sayError(error);
    }),
  });
  const leave = new AbortController();
  const card = h(
    "div",
    { class: "tour", role: "dialog", "aria-modal": "true", "aria-labelledby": title.id, "aria-describedby": text.id },
    h("div", { class: "builder-part-head" }, where, skip),
    title,
    text,
    examples,
    h("div", { class: "form-actions" }, back, next),
  );
  let index = -1;
  let target = null;
  const follow = () => target && place(ring, card, target);

  function end() {
    remember();
    isOpen = false;
    leave.abort();
    ring.remove();
    card.remove();
    document.querySelector("main h1")?.focus();
  }

  async function show(wanted) {
    if (wanted >= steps.length) {
      end();
      return;
    }
    index = Math.max(0, wanted);
    const [way, selector, name] = steps[index];
    const path = typeof way === "string" ? way : way(there);
    if (location.pathname + (path.includes("?") ? location.search : "") !== path) {
      await go(path);
    }
    frame.setMenu(name === "menu" && innerWidth <= 860);
    target = await appear(selector);
    if (!isOpen) {
      return;
    }
    where.textContent = t("tour.step", { step: String(index + 1), count: String(steps.length) });
    title.textContent = t(`tour.${name}.title`);
    text.textContent = t(`tour.${name}.text`);
    back.disabled = index === 0;
    examples.hidden = name !== "welcome" || there.runs.length > 1 || !permits("operator");
    next.textContent = t(index === steps.length - 1 ? "tour.end" : "tour.next");
    target ??= document.querySelector("main");
    target.scrollIntoView({ block: "center" });
    place(ring, card, target);
    title.focus({ preventScroll: true });
  }

  function onKey(event) {
    if (event.key === "Escape") {
      end();
    } else if (event.key === "ArrowRight") {
      show(index + 1);
    } else if (event.key === "ArrowLeft") {
      show(index - 1);
    } else if (event.key === "Tab") {
      keepFocus(event, card);
    } else {
      return;
    }
    event.stopPropagation();
  }

  addEventListener("keydown", onKey, { capture: true, signal: leave.signal });
  addEventListener("resize", follow, { signal: leave.signal });
  document.body.append(ring, card);
  show(0);
}

/** Moves the focus around within the card. */
function keepFocus(event, card) {
  const stops = [...card.querySelectorAll("button:not(:disabled, [hidden])")];
  const at = stops.indexOf(document.activeElement);
  const step = event.shiftKey ? -1 : 1;
  stops[(at + step + stops.length) % stops.length].focus();
  event.preventDefault();
}
