// The worker: CPython as WebAssembly, and in it the broker. It talks with the page in messages alone.

const PACKED = /\.(wasm|tar)$/; // these come as gzip, whatever the server does
const PLACE = "/lab";
const FILES = await (await fetch("files.json")).json();

const plainFetch = globalThis.fetch;
async function unpacked(address) {
  const answer = await plainFetch(`${address}.gz`);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.body.pipeThrough(new DecompressionStream("gzip"));
}

globalThis.fetch = async (asked, options) => {
  const address = String(asked.url || asked);
  if (!PACKED.test(address)) return plainFetch(asked, options);
  return new Response(await unpacked(address), { headers: { "Content-Type": "application/wasm" } });
};

const rounded = (since) => Math.round(performance.now() - since);

async function start() {
  const figures = {};
  const began = performance.now();
  postMessage({ said: "Python loads …" });
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const [python, source] = await Promise.all([
    loadPyodide({ packages: FILES.wheels.map((name) => new URL(`pyodide/${name}`, location.href).href) }),
    fetch("minibroker.tar").then((answer) => answer.arrayBuffer()),
  ]);
  figures.pyodide = rounded(began);
  const unpacking = performance.now();
  postMessage({ said: "The broker loads …" });
  python.unpackArchive(source, "tar", { extractDir: PLACE });
  python.runPython(`import sys; sys.path.append("${PLACE}")`);
  const { opened } = python.pyimport("minibroker.lab.desk");
  figures.imported = rounded(unpacking);
  const starting = performance.now();
  const desk = await opened((message) => {
    const plain = message.toJs({ dict_converter: Object.fromEntries });
    message.destroy?.();
    postMessage(plain);
  });
  figures.started = rounded(starting);
  onmessage = ({ data }) => {
    const message = python.toPy(data);
    desk.take(message);
    message.destroy();
  };
  postMessage({ ready: figures });
}

start().catch((error) => postMessage({ failed: String(error.message || error).trim().split("\n").pop() }));
