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

/** The prefix of the keys of sentences that the server says. Their English is the server's own. */
const SAID = "said.";
/** Prefixes of what is only a part of a sentence, such as a place, or the words of a library. */
const PARTS = ["said.part_", "said.foreign_"];
/** Values that are sentences or words. All others are data: names, paths, numbers. */
const WORDED = new Set(["found", "kind", "limit", "method", "one", "other", "own", "place", "rest", "role", "state", "takes", "what"]);
/** Where words stand. */
const WORDS = ["word", "state", "role"];
const DEPTH_MAX = 4;
let patterns = null;

/** The server's sentences as expressions with a group for each value, the longest first. */
function saidPatterns() {
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  patterns ??= Object.entries(english)
    .filter(([key]) => key.startsWith(SAID))
    .sort(([, one], [, other]) => other.length - one.length)
    .map(([key, text]) => {
      const parts = text.split(/\{(\w+)\}/);
      const source = parts.map((part, place) => (place % 2 === 0 ? escaped(part) : `(?<${part}>.+?)`));
      const isPart = PARTS.some((prefix) => key.startsWith(prefix));
      return { key, isPart, expression: new RegExp(`^${source.join("")}$`, "su") };
    });
  return patterns;
}

/** A value of a sentence: data as it is, else another sentence or a word. */
function saidValue(name, value, depth) {
  if (!WORDED.has(name)) {
    return value;
  }
  const word = WORDS.map((prefix) => known(`${prefix}.${value}`, null)).find((text) => text !== null);
  return word ?? said(value, depth) ?? value;
}

/**
 * A sentence of the server in the language in use; nothing if it is not known. The server writes
 * English: what it says is found again by the English text.
 */
export function said(sentence, depth = 0) {
  if (language === "en") {
    return sentence;
  }
  if (depth >= DEPTH_MAX) {
    return null;
  }
  for (const { key, isPart, expression } of saidPatterns()) {
    const match = isPart && depth === 0 ? null : expression.exec(sentence);
    if (match) {
      const values = Object.entries(match.groups ?? {}).map(([name, value]) => [name, saidValue(name, value, depth + 1)]);
      return t(key, Object.fromEntries(values));
    }
  }
  return null;
}
