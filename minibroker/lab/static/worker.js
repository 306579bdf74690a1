// The worker: CPython as WebAssembly, and in it the broker. It talks with the page in messages alone.

const PLACE = "/lib/minibroker.zip";

// The first message says what to begin with; those that follow come once the broker serves.
const first = new Promise((came) => { onmessage = ({ data }) => came(data.opened); });

const plainFetch = globalThis.fetch;
async function unpacked(address) {
  const answer = await plainFetch(`${address}.gz`);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.body.pipeThrough(new DecompressionStream("gzip"));
}

// These come as gzip, whatever the server does; all at once, and before Pyodide asks for them, one after the other.
const SOON = ["pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip", "pyodide/pyodide-lock.json", "minibroker.zip"];
const coming = new Map(SOON.map((name) => new URL(name, location.href).href).map((address) => [address, unpacked(address)]));
for (const each of coming.values()) each.catch(() => {}); // who awaits it, says so

globalThis.fetch = async (asked, options) => {
  const body = coming.get(new URL(asked.url || asked, location.href).href);
  return body ? new Response(await body, { headers: { "Content-Type": "application/wasm" } }) : plainFetch(asked, options);
};

const rounded = (since) => Math.round(performance.now() - since);

async function start() {
  const figures = {};
  const began = performance.now();
  postMessage({ said: "Python loads …" });
  const [{ loadPyodide }, files] = await Promise.all([import("./pyodide/pyodide.mjs"), fetch("files.json").then((answer) => answer.json())]);
  const [python, source] = await Promise.all([
    loadPyodide({ packages: files.wheels.map((name) => new URL(`pyodide/${name}`, location.href).href) }),
    fetch("minibroker.zip").then((answer) => answer.arrayBuffer()),
  ]);
  figures.pyodide = rounded(began);
  const unpacking = performance.now();
  postMessage({ said: "The broker loads …" });
  python.FS.writeFile(PLACE, new Uint8Array(source));
  python.runPython(`import sys; sys.path.append("${PLACE}")`);
  const { open_desk: openDesk } = python.pyimport("minibroker.lab.desk");
  figures.imported = rounded(unpacking);
  const starting = performance.now();
  const file = await first;
  const path = file && `/tmp/${file.name.replaceAll("/", "_")}`;
  if (file) python.FS.writeFile(path, file.data);
  const desk = await openDesk((message) => {
    const plain = message.toJs({ dict_converter: Object.fromEntries });
    message.destroy?.();
    postMessage(plain);
  }, path || undefined);
  figures.started = rounded(starting);
  onmessage = ({ data }) => {
    const message = python.toPy(data);
    desk.process_page_message(message);
    message.destroy();
  };
  postMessage({ ready: figures });
}

// Of Python's traceback, the message.
const lastLine = (error) => String(error.message || error).trim().split("\n").pop().replace(/^[\w.]+: /, "");

start().catch((error) => postMessage({ failed: lastLine(error) }));
