// Starts the console: language, session, then the page of the path. Owns what stands around every
// page: navigation, notices, and what happens when the session ends or the server is gone.

import { ApiError, errorText, get, loadSession, onConnection, permits, session } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { startLanguage, t } from "./i18n.js";
import { clearNotices, failure, notices } from "./parts/notice.js";
import { head } from "./parts/page.js";
import { match, startRouter } from "./router.js";
import { markCurrent, shell } from "./shell.js";
import { offerTour } from "./tour.js";

const app = document.getElementById("app");
let leave = new AbortController();
let frame = null;
let retrying = null;
/** Pause between two looks for a server that does not answer. */
const RETRY_MS = 3000;

/** Shows the sign-in page; `reason` says why, if the user did not choose it. */
async function showSignIn(reason) {
  leave.abort();
  leave = new AbortController();
  frame = null;
  const { renderSignIn } = await import("./pages/sign_in.js");
  document.title = t("title", { page: t("sign_in.title") });
  renderSignIn(app, { reason, done: () => show(), again: () => showSignIn(reason) });
}

function ensureFrame() {
  if (frame === null) {
    frame = shell({ again: rebuild, signedOut: () => showSignIn(null) });
    fill(app, frame.root, notices());
  }
  return frame;
}

/** Builds everything anew, in another language or theme. */
function rebuild() {
  frame = null;
  return show();
}

function showProblem(main, key) {
  fill(
    main,
    h("div", { class: "panel" }, h(
      "div",
      { class: "empty" },
      icon("warning"),
      h("h1", { tabindex: "-1" }, t(`${key}.title`)),
      h("p", null, t(`${key}.text`)),
      h("div", { class: "actions" }, h("a", { class: "button", href: "/" }, t("nav.overview"))),
    )),
  );
  document.title = t("title", { page: t(`${key}.title`) });
}

/** Whether the same request may succeed later: a refused value is refused again. */
function canPass(error) {
  const { status } = error;
  return !(error instanceof ApiError) || status === 0 || status >= 500 || status === 408 || status === 429;
}

/** Shows why a page could not be shown. */
function showFailure(main, error) {
  const key = error instanceof ApiError ? { 403: "denied", 404: "not_found" }[error.status] : null;
  if (key) {
    showProblem(main, key);
    return;
  }
  const wayOn = canPass(error) ? null : h(
    "a",
    { class: "button", href: location.search ? location.pathname : "/" },
    t(location.search ? "failed.plain" : "nav.overview"),
  );
  fill(main, head(t("failed.title")), failure(errorText(error), show, wayOn));
  if (!(error instanceof ApiError)) {
    console.error(error);
  }
}

/** Shows the page of the current path. */
async function show() {
  if (!session.user) {
    return showSignIn(null);
  }
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { main } = ensureFrame();
  clearNotices();
  frame.isTouched = false;
  const path = location.pathname;
  markCurrent(frame, path);
  const page = match(path);
  if (page === null) {
    return showProblem(main, "not_found");
  }
  if (!permits(page.role)) {
    return showProblem(main, "denied");
  }
  const query = new URLSearchParams(location.search);
  const context = { main, parts: page.parts, query, signal, reload: show };
  main.setAttribute("aria-busy", "true");
  try {
    const module = await page.load();
    if (!signal.aborted) {
      await module.render(context);
    }
  } catch (error) {
    if (!signal.aborted && session.user) {
      showFailure(main, error);
    }
  }
  if (!signal.aborted) {
    main.removeAttribute("aria-busy");
    arrive(main);
    offerTour(frame);
  }
  return undefined;
}

/**
 * Names the page and puts the focus on its heading, so that screen readers read it, unless the page
 * has put it elsewhere, as on a field that is wrong.
 */
function arrive(main) {
  const heading = main.querySelector("h1");
  if (heading) {
    document.title = t("title", { page: heading.textContent });
    if (!main.contains(document.activeElement)) {
      heading.focus({ preventScroll: true });
    }
  }
  scrollTo(0, 0);
}

/** Shows that the server is gone, and looks for it until it is back. */
function lost() {
  if (retrying !== null || frame === null) {
    return;
  }
  frame.offline.hidden = false;
  retrying = setInterval(() => get("/health", { quiet: true }).catch(() => {}), RETRY_MS);
}

/** Goes on: the page is shown anew, unless that would lose what was written into it. */

function found() {
  if (retrying === null) {
    return;
  }
  clearInterval(retrying);
  retrying = null;
  if (frame) {
    frame.offline.hidden = true;
    if (!frame.isTouched) {
      show();
    }
  }
}

async function start() {
  await startLanguage();
  onConnection({ expired: () => showSignIn("expired"), offline: lost, online: found });
  startRouter(show);
  try {
    await loadSession();
  } catch (error) {
    fill(app, h("main", null, failure(errorText(error), () => location.reload())));
    setInterval(() => get("/health", { quiet: true }).then(() => location.reload(), () => {}), RETRY_MS);
    return;
  }
  await show();
}

start();
