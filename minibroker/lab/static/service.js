// The service worker: it keeps each file of this version that the page has loaded, and nothing else.

const KEPT = "minibroker-lab-VERSION";

// The page had these before there was a service worker; all others it asks for later, and through it.
const FIRST = ["./", "lab.js", "style.css", "lab.css", "icon.svg"];

addEventListener("install", (event) => event.waitUntil(caches.open(KEPT).then((kept) => kept.addAll(FIRST))));

addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("minibroker-lab-") && name !== KEPT);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
})()));

addEventListener("fetch", (event) => {
  const address = new URL(event.request.url);
  if (event.request.method === "GET" && address.href.startsWith(registration.scope)) event.respondWith(answer(event.request));
});

async function answer(request) {
  const kept = await caches.open(KEPT);
  const found = await kept.match(request, { ignoreSearch: true });
  if (found) return found;
  const came = await fetch(request);
  if (came.ok) await kept.put(request, came.clone());
  return came;
}
