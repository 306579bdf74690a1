// The lab's page: it starts the worker that has the broker, and lets the explorer's page ask it in the place of a server.

const BASE = "http://lab/explorer/";
const OPENED = "minibroker-opened";
const OPENED_FILE = "opened";
const MOST_BYTES = 64 << 20;
const waiting = new Map();
let last = 0;
let worker = null;

// What `fetch` does, answered by the worker.
function ask(path, { method = "GET", headers = {}, body = null, signal = null } = {}) {
  const id = (last += 1);
  const { pathname, search } = new URL(path, BASE);
  return new Promise((answered, failed) => {
    waiting.set(id, { answered, failed });
    signal?.addEventListener("abort", () => {
      stop(id);
      failed(new DOMException("stopped", "AbortError"));
    });
    const sent = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    worker.postMessage({ ask: id, method, target: pathname + search, headers: sent, body });
  });
}

function stop(id) {
  waiting.get(id)?.stream?.error(new DOMException("stopped", "AbortError"));
  waiting.delete(id);
  worker.postMessage({ stop: id });
}

function came({ id, status, headers, piece, end }) {
  const one = waiting.get(id);
  if (!one) return;
  if (status) {
    const body = new ReadableStream({ start(stream) { one.stream = stream; }, cancel: () => stop(id) });
    one.answered(new Response([204, 304].includes(status) ? null : body, { status, headers }));
  } else if (end) {
    one.stream.close();
    waiting.delete(id);
  } else if (piece.length) {
    one.stream.enqueue(piece);
  }
}

// The service worker keeps the files, so that the lab also opens without a network. Not all servers are secure contexts, and a
// private window may refuse it: then the browser's own cache must do.
const keepFiles = () => navigator.serviceWorker?.register("service.js").catch(() => null);

function say(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = text;
}

// The state in a link, which may have been cut off on its way: then the worker says that this is no archive.
function decoded(name, text) {
  try {
    const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return { name: decodeURIComponent(name), data: Uint8Array.from(bytes, (each) => each.charCodeAt(0)) };
  } catch {
    return { name: "the link", data: new TextEncoder().encode(text) };
  }
}

// What to begin with: a link that holds a state, a file that was dropped before this page was loaded again, or nothing.
async function given() {
  const [, name, text] = /^#state=([^&]*)&(.*)$/.exec(location.hash) || [];
  if (text) {
    history.replaceState(null, "", "#/frames");
    return decoded(name, text);
  }
  const kept = await globalThis.caches?.open(OPENED);
  const found = await kept?.match(OPENED_FILE);
  if (!found) return null;
  await caches.delete(OPENED);
  return { name: decodeURIComponent(found.headers.get("x-name")), data: new Uint8Array(await found.arrayBuffer()) };
}

// Open a file: the page is loaded again, and begins with it.
async function open(file) {
  if (!globalThis.caches) throw new Error("Files can be opened over HTTPS, and from this machine.");
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES >> 20} MiB.`);
  const kept = await caches.open(OPENED);
  await kept.put(OPENED_FILE, new Response(file, { headers: { "x-name": encodeURIComponent(file.name) } }));
  location.hash = "#/frames";
  location.reload();
}

addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) open(file).catch((error) => alert(error.message));
});

const opened = await given();
worker = new Worker("worker.js", { type: "module" });
worker.onerror = (event) => say(`The broker does not start: ${event.message}`);
worker.onmessage = async ({ data }) => {
  if (data.id) return came(data);
  if (data.said) return say(data.said);
  if (data.failed) return say(opened ? `${data.failed} Load the page again for a new broker.` : `The broker does not start: ${data.failed}`);
  document.documentElement.dataset.figures = JSON.stringify({ ...data.ready, all: Math.round(performance.now()) });
  globalThis.lab = { fetch: ask, open };
  document.getElementById("loading").remove();
  await import("./bundle.js");
  keepFiles(); // once nothing waits for files any more
};
worker.postMessage({ opened });
