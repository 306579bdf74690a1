// Numbers, times and texts for people.

const SIZES = ["B", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  let at = 0;
  let value = count;
  while (value >= 1000 && at < SIZES.length - 1) { value /= 1000; at += 1; }
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${SIZES[at]}`;
}

export function span(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${Math.round(ms / 86_400_000)} days`;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function moment(ms) {
  if (!(ms >= 0 && ms < 8.64e15)) return String(ms);
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

export const counted = (number, noun, nouns = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : nouns}`;

export const hex2 = (byte) => byte.toString(16).padStart(2, "0");

export function fromBase64(text) {
  const binary = atob(text);
  const found = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) found[at] = binary.charCodeAt(at);
  return found;
}

export function isDark() {
  return getComputedStyle(document.documentElement).colorScheme.startsWith("dark")
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
}

// The families of APIs share a colour everywhere.
const FAMILIES = [
  ["produce", /^(Produce|InitProducerId|DescribeProducers)$/],
  ["fetch", /^(Fetch|ShareFetch|ShareAcknowledge|ListOffsets|OffsetForLeaderEpoch|DeleteRecords)$/],
  ["txn", /Txn|Transaction/],
  ["group", /Group|Offset|FindCoordinator|Heartbeat/],
  ["login", /Sasl|Token|Scram|Acl/],
  ["meta", /^(ApiVersions|Metadata|DescribeCluster|GetTelemetrySubscriptions|PushTelemetry)$/],
];

export function family(api) {
  const found = FAMILIES.find(([, pattern]) => pattern.test(api));
  return found ? found[0] : "admin";
}
