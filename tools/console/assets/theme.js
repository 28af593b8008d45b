// Sets theme and language of the document before its first paint, so that neither flashes.
// Both are preferences of this browser; without them the system's settings hold.
(() => {
  const root = document.documentElement;
  try {
    root.dataset.theme = localStorage.getItem("farcore.theme") ?? "system";
    root.lang = localStorage.getItem("farcore.language") ?? root.lang;
  } catch {
    // Storage may be forbidden; the system's settings hold then.
  }
})();
