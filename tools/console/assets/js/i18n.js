// Languages. All texts stand in ../strings, one file a language, with the same keys in each.

import english from "../strings/en.js";

/** Languages with their own names. The texts of all but English are loaded when chosen. */
export const LANGUAGES = { en: english["language.en"], "zh-CN": english["language.zh-CN"] };
const KEY = "farcore.language";

let language = "en";
let texts = english;

function preferred() {
  let stored = null;
  try {
    stored = localStorage.getItem(KEY);
  } catch {
    // Storage may be forbidden; the browser's languages hold then.
  }
  if (stored in LANGUAGES) {
    return stored;
  }
  const first = (navigator.languages ?? []).find((one) => /^(en|zh)\b/.test(one)) ?? "en";
  return first.startsWith("zh") ? "zh-CN" : "en";
}

async function load(name) {
  texts = name === "zh-CN" ? (await import("../strings/zh.js")).default : english;
  language = name;
  document.documentElement.lang = name;
}

/** Loads the preferred language. */
export function startLanguage() {
  return load(preferred());
}

/** Switches to a language and remembers it. */
export async function useLanguage(name) {
  await load(name);
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // It holds until the page is closed.
  }
}

/** The language in use, as BCP 47. */
export function currentLanguage() {
  return language;
}

function replaced(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** The text of a key. `values` replace its names in braces. */
export function t(key, values = {}) {
  const text = texts[key];
  if (text === undefined) {
    console.error(`no text for ${key}`);
    return key;
  }
  return replaced(text, values);
}

/** The text of a key that the server may have made; `otherwise` if there is none. */
export function known(key, otherwise) {
  return Object.hasOwn(texts, key) ? texts[key] : otherwise;
}

/** The text for a number of things: `key.one` or `key.other`. */
export function count(key, number, shown) {
  const form = number === 1 ? "one" : "other";
  return t(`${key}.${form}`, { count: shown ?? String(number) });
}
