// Paths and their pages. A page is a module with `render(context)`; it is loaded when first seen.

const ROUTES = [
  [/^\/$/, () => import("./pages/overview.js")],
  [/^\/runs$/, () => import("./pages/runs.js")],
  [/^\/runs\/new$/, () => import("./pages/new_run.js"), "operator"],
  [/^\/runs\/(\d+)$/, () => import("./pages/run.js")],
  [/^\/fit(?:\/(\d+))?$/, () => import("./pages/fit.js")],
  [/^\/compare$/, () => import("./pages/compare.js")],
  [/^\/data$/, () => import("./pages/data.js")],
  [/^\/data\/(\d+)$/, () => import("./pages/dataset.js")],
  [/^\/logs$/, () => import("./pages/logs.js")],
  [/^\/live$/, () => import("./pages/live.js")],
  [/^\/users$/, () => import("./pages/users.js"), "administrator"],
  [/^\/account$/, () => import("./pages/account.js")],
];

/** The page of a path: its loader, the role that it needs, and the parts of its path. */
export function match(path) {
  for (const [pattern, load, role] of ROUTES) {
    const parts = pattern.exec(path);
    if (parts) {
      return { load, role: role ?? "viewer", parts: parts.slice(1).filter((part) => part !== undefined) };
    }
  }
  return null;
}

let onChange = () => {};

/** Sets what shows a path, and takes over clicks on links within the console. */
export function startRouter(show) {
  onChange = show;
  addEventListener("popstate", () => show());
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) {
      return;
    }
    const url = new URL(link.href);
    const isFile = url.pathname.startsWith("/api/");
    if (url.origin !== location.origin || isFile || link.getAttribute("href").startsWith("#")) {
      return;
    }
    event.preventDefault();
    go(url.pathname + url.search);
  });
}

/** Goes to a path of the console. */
export function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  return onChange();
}

/** Changes the query of the current path, and what its entry holds, without showing it again. */
export function rewriteQuery(query, state = null) {
  const text = query.toString();
  history.replaceState(state, "", location.pathname + (text ? `?${text}` : ""));
}
