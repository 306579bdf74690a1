// The server: JSON in and out, and a stream of server-sent events. With a token, every request carries it.
// EventSource cannot send headers, so the stream is read with fetch.

import { signal } from "./lib.js";

const TOKEN = "minibroker-token";
const RETRY_MS = 1000;

export const needsToken = signal(false);
export const connected = signal(true);

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
  needsToken.value = false;
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return { ...more, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

// An error that the server explains in one line.
export class Refused extends Error {}

async function asked(path, options) {
  // In the lab, a worker answers in the place of a server.
  const response = await (globalThis.lab?.fetch ?? fetch)(path, options);
  if (response.status === 401) needsToken.value = true;
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Refused(body.message || `${response.status} ${response.statusText}`);
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== ""));
  const response = await asked(`api/${path}${query.size ? `?${query}` : ""}`, { headers: headers() });
  return response.json();
}

async function sent(method, path, body) {
  const options = { method, headers: headers() };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await asked(path, options);
  return response.status === 204 ? null : response.json();
}

export const post = (path, body) => sent("POST", `api/${path}`, body);
export const remove = (path) => sent("DELETE", `api/${path}`);

// The verbs of the test kit, by the paths of the HTTP control.
export const control = (method, path, body) => sent(method, `../v1/${path}`, body);

// Have the browser save what the server has. A plain link could not carry the token.
export async function save(path, name) {
  const response = await asked(`api/${path}`, { headers: headers() });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), RETRY_MS);
}

// Call `handlers[name]` for each event until the returned function is called. `parameters` is asked again after a break.
export function follow(path, parameters, handlers) {
  const stop = new AbortController();
  const run = async () => {
    while (!stop.signal.aborted) {
      try {
        const response = await asked(`api/${path}?${new URLSearchParams(parameters())}`, { headers: headers(), signal: stop.signal });
        connected.value = true;
        await read(response.body, handlers);
      } catch (error) {
        if (stop.signal.aborted) return;
      }
      connected.value = false;
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  };
  run();
  return () => stop.abort();
}

async function read(body, handlers) {
  let text = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [name, data] = event.split("\ndata: ");
      handlers[name.slice("event: ".length)]?.(JSON.parse(data));
    }
  }
}
