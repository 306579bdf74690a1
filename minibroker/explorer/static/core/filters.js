// The grammar of filters: words of the test kit's faults and journal with values, "api=Produce|Fetch topic=orders".
// A word without "=" is looked for in the whole row. The server says which words there are.

const PART = /(?:([a-z_]+)(!?=))?(?:"([^"]*)"|(\S+))/g;

const is = (wanted, value) => wanted.some((each) => each.toLowerCase() === String(value ?? "").toLowerCase());
const within = (wanted, values) => wanted.some((each) => values.some((value) => value.toLowerCase() === each.toLowerCase()));
const holds = (wanted, text) => wanted.some((each) => text.toLowerCase().includes(each.toLowerCase()));

function versions(text) {
  const match = /^(\d+)(?:(\+)|-(\d+))?$/.exec(text);
  if (!match) throw new Error(`${text} is not a version; write 9, 3-9 or 12+`);
  const [, first, plus, last] = match;
  return [Number(first), plus ? Infinity : Number(last ?? first)];
}

// Whether a row names one of the partitions: of the wanted topics, if the filter names any.
const inPartitions = (row, partitions, topics) => Object.entries(row.topics).some(([name, numbers]) =>
  (!topics || topics.includes(name)) && numbers.some((number) => partitions.includes(number)));

const TESTS = {
  api: (wanted) => (row) => is(wanted, row.api),
  version: (wanted) => {
    const ranges = wanted.map(versions);
    return (row) => ranges.some(([first, last]) => row.version >= first && row.version <= last);
  },
  node: (wanted) => (row) => is(wanted, row.node),
  client_id: (wanted) => (row) => is(wanted, row.client_id),
  user: (wanted) => (row) => is(wanted, row.user ?? "ANONYMOUS"),
  mechanism: (wanted) => (row) => is(wanted, row.mechanism),
  topic: (wanted) => (row) => wanted.some((each) => Object.hasOwn(row.topics, each)),
  partition: (wanted, given) => {
    const partitions = wanted.map(Number);
    return (row) => inPartitions(row, partitions, given.topic);
  },
  group: (wanted) => (row) => within(wanted, row.groups),
  transactional_id: (wanted) => (row) => within(wanted, row.transactional_ids),
  error: (wanted) => (row) => (is(wanted, "any") ? row.errors.length > 0 : within(wanted, row.errors)),
  outcome: (wanted) => (row) => is(wanted, row.outcome),
  fault: (wanted) => (row) => (is(wanted, "any") ? row.faults.length > 0 : holds(wanted, row.faults.join("\n"))),
  connection: (wanted) => (row) => is(wanted, row.connection),
};

export const WORDS = Object.keys(TESTS);

function text(row) {
  return [row.number, row.api, row.client_id, row.user, row.mechanism, row.connection, row.outcome, ...row.errors, ...row.faults,
    ...Object.keys(row.topics), ...row.groups, ...row.transactional_ids].join(" ").toLowerCase();
}

// Return a function that says whether a row is meant. Throws an Error that says what is wrong.
export function filter(source) {
  const tests = [];
  const given = {};
  for (const [, word, sign, quoted, bare] of source.matchAll(PART)) {
    if (word && sign === "=") given[word] = quoted === undefined ? bare.split("|") : [quoted];
  }
  for (const [, word, sign, quoted, bare] of source.matchAll(PART)) {
    const value = quoted ?? bare;
    if (word && Object.hasOwn(TESTS, word)) {
      const test = TESTS[word](quoted === undefined ? value.split("|") : [value], given);
      tests.push(sign === "!=" ? (row) => !test(row) : test);
    } else if (word) {
      throw new Error(`a filter has no ${word}; it has ${WORDS.join(", ")}`);
    } else {
      const wanted = value.toLowerCase();
      tests.push((row) => text(row).includes(wanted));
    }
  }
  return tests.length ? (row) => tests.every((test) => test(row)) : () => true;
}

// Add a word to a filter, or remove it if it is there.
export function toggled(source, word, value) {
  const part = `${word}=${/[\s"|]/.test(value) ? `"${value}"` : value}`;
  const parts = source.match(/(?:[a-z_]+!?=)?(?:"[^"]*"|\S+)/g) || [];
  return (parts.includes(part) ? parts.filter((each) => each !== part) : [...parts, part]).join(" ");
}
