// Requests to the console's server. Every request that changes something carries the session's
// CSRF token. Listeners learn that a session has ended or that the server does not answer,
// since every page meets them in the same way.

import { currentLanguage, known, said, t } from "./i18n.js";

/** A refused request. `status` is 0 if the server did not answer. */
export class ApiError extends Error {
  constructor(status, { code, message, field } = {}, retryAfter = null) {
    super(message ?? code ?? String(status));
    this.status = status;
    this.code = code ?? (status === 0 ? "offline" : "unexpected");
    this.field = field ?? null;
    this.retryAfter = retryAfter;
  }
}

/** The session: user and CSRF token, or nothing. */
export const session = { user: null, csrf: null };

const RANKS = { viewer: 1, operator: 2, administrator: 3 };

/** Whether the user's role permits what `role` permits. */
export function permits(role) {
  return (RANKS[session.user?.role] ?? 0) >= RANKS[role];
}

/** What a proxy answers for a server behind it that does not. */
const OF_A_PROXY = new Set([502, 503, 504]);
/** Pauses before a stream that the browser gave up is opened again: the first and the longest. */
const REOPEN_MS = [1000, 30_000];

const listeners = { expired: () => {}, offline: () => {}, online: () => {} };

/** Sets what happens when the session ends, and when the server is lost and found. */
export function onConnection(given) {
  Object.assign(listeners, given);
}

/** The text of an error for the user, in the language in use. */
export function errorText(error) {
  if (!(error instanceof ApiError)) {
    return t("error.unexpected");
  }
  if (error.code === "locked" && error.retryAfter) {
    return t("error.locked_for", { seconds: error.retryAfter });
  }
  // The server's sentences are English and name the values.
  if (currentLanguage() === "en" && error.status !== 0 && error.message !== error.code) {
    return error.message;
  }
  const translated = error.status === 0 || error.message === error.code ? null : said(error.message);
  if (translated !== null) {
    return translated;
  }
  const text = known(`error.${error.code}`, null);
  if (text === null) {
    return error.message;
  }
  // What is wrong inside a file, only the server's sentence says.
  const hasDetail = error.status === 422 || error.status === 413;
  return hasDetail ? `${text} (${error.message})` : text;
}

async function errorOf(response) {
  const type = response.headers.get("content-type") ?? "";
  const body = type.includes("json") ? await response.json().catch(() => ({})) : {};
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  return new ApiError(response.status, body.error ?? {}, retryAfter);
}

/** Tells the listeners of an error what concerns all pages. */
export function notice(error) {
  if (error.status === 0) {
    listeners.offline();
  } else if (error.status === 401 && session.user) {
    session.user = null;
    session.csrf = null;
    listeners.expired();
  }
}

/** Whether a proxy answered in the place of the console, whose own errors are JSON. */
function isOfProxy(response) {
  return OF_A_PROXY.has(response.status) && !(response.headers.get("content-type") ?? "").includes("json");
}

async function send(method, path, { body, signal, quiet } = {}) {
  const headers = {};
  if (method !== "GET" && session.csrf) {
    headers["x-csrf-token"] = session.csrf;
  }
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  let response = null;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) {
      throw error;
    }
  }
  if (response === null || isOfProxy(response)) {
    const offline = new ApiError(0);
    if (!quiet) {
      notice(offline);
    }
    throw offline;
  }
  listeners.online();
  if (!response.ok) {
    const error = await errorOf(response);
    if (!quiet) {
      notice(error);
    }
    throw error;
  }
  return response;
}

async function json(method, path, options) {
  const response = await send(method, path, options);
  if (response.status === 204) {
    return null;
  }
  const type = response.headers.get("content-type") ?? "";
  return type.includes("json") ? response.json() : null;
}

export const get = (path, options) => json("GET", path, options);
export const post = (path, body, options) => json("POST", path, { body, ...options });
export const patch = (path, body, options) => json("PATCH", path, { body, ...options });
export const remove = (path, options) => json("DELETE", path, options);

/** The body of an answer as a file. */
export async function postForFile(path, body) {
  const response = await send("POST", path, { body });
  return response.blob();
}

/** Asks whose session this is; false without one. */
export async function loadSession() {
  try {
    Object.assign(session, await get("/api/session", { quiet: true }));
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      session.user = null;
      session.csrf = null;
      return false;
    }
    throw error;
  }
}

/** Signs in and begins a session. */
export async function signIn(name, password) {
  Object.assign(session, await post("/api/session", { name, password }, { quiet: true }));
}

/** Ends the session. If it has ended already, that is what was to be reached. */
export async function signOut() {
  try {
    await remove("/api/session", { quiet: true });
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) {
      throw error;
    }
  }
  session.user = null;
  session.csrf = null;
}

/**
 * Sends a file as it is, since fetch shows no progress of what it sends. `progress` gets the
 * share that was sent, 0 to 1.
 */
export function upload(path, file, { progress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.setRequestHeader("x-csrf-token", session.csrf ?? "");
    request.setRequestHeader("content-type", "application/octet-stream");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) {
        progress(event.loaded / event.total);
      }
    });
    const fail = (error) => {
      notice(error);
      reject(error);
    };
    request.addEventListener("error", () => fail(new ApiError(0)));
    request.addEventListener("abort", () => reject(new DOMException("", "AbortError")));
    request.addEventListener("load", () => {
      if (request.status >= 200 && request.status < 300) {
        resolve(request.response);
      } else {
        fail(new ApiError(request.status, request.response?.error ?? {}));
      }
    });
    signal?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/**
 * Listens to server-sent events until `signal` aborts or the given `close` is called. The browser
 * connects again by itself. A stream that it gives up, as after an answer of a proxy, is opened
 * again from its beginning, after `handlers.restart`.
 */
export function listen(path, handlers, signal) {
  let source = null;
  let timer = null;
  let isOver = false;
  let [pause] = REOPEN_MS;
  const close = () => {
    isOver = true;
    clearTimeout(timer);
    source.close();
  };
  const failed = async () => {
    const isGivenUp = source.readyState === EventSource.CLOSED;
    await get("/api/session", { signal }).catch(() => {});
    if (isGivenUp && !isOver) {
      timer = setTimeout(() => {
        handlers.restart?.();
        open();
      }, pause);
      pause = Math.min(pause * 2, REOPEN_MS[1]);
    }
  };
  function open() {
    source = new EventSource(path);
    for (const [name, handler] of Object.entries(handlers.on)) {
      source.addEventListener(name, (event) => {
        [pause] = REOPEN_MS;
        listeners.online();
        handler(JSON.parse(event.data), close);
      });
    }
    source.addEventListener("error", () => isOver || failed());
  }
  signal.addEventListener("abort", close, { once: true });
  open();
  return close;
}
