// The service worker: it keeps the files of this version, and nothing else.

const KEPT = "minibroker-lab-VERSION";

addEventListener("install", (event) => event.waitUntil((async () => {
  const newest = { cache: "no-cache" }; // of what the browser's own cache has, the server only says that it is still so
  const { files } = await (await fetch("files.json", newest)).json();
  await (await caches.open(KEPT)).addAll(["./", ...files].map((name) => new Request(name, newest)));
})()));

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
