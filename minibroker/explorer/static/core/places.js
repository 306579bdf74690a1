// Where the page is: #/view/name/...?word=value. Every object has such an address, which can be shared.

import { signal, computed } from "./lib.js";

const hash = signal(location.hash);
addEventListener("hashchange", () => { hash.value = location.hash; });

export const place = computed(() => {
  const [path, query = ""] = hash.value.replace(/^#?\/?/, "").split("?");
  const names = path.split("/").filter(Boolean).map(decoded);
  return { view: names[0] || "frames", names: names.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
});

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(view, names = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const path = [view, ...names].map((name) => encodeURIComponent(name)).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function go(view, names = [], query = {}, { replace = false } = {}) {
  const to = address(view, names, query);
  if (to === hash.value) return;
  if (replace) {
    history.replaceState(null, "", to);
    hash.value = to;
  } else {
    location.hash = to;
  }
}
