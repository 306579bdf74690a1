"use strict";
// Shows each operation of openapi.json, with a form to try it out.

function made(name, text, properties) {
  const element = Object.assign(document.createElement(name), properties);
  if (text !== undefined) element.textContent = text;
  return element;
}

class Description {
  constructor(root) { this.root = root; }

  resolved(schema) {
    return schema.$ref ? this.resolved(schema.$ref.slice(2).split("/").reduce((part, key) => part[key], this.root)) : schema;
  }

  // The schema of one value: the first that is not null, and of an array the first alternative.
  single(schema) {
    const found = this.resolved(schema);
    const choices = found.anyOf || found.oneOf;
    return choices ? this.single(choices.find((each) => each.type !== "null") || choices[0]) : found;
  }

  type(schema) {
    const found = this.resolved(schema);
    const choices = found.anyOf || found.oneOf;
    if (choices) return choices.map((each) => this.type(each)).join(" or ");
    if (found.enum) return found.enum.map((each) => JSON.stringify(each)).join(", ");
    return found.type === "array" ? "list of " + this.type(found.items || {}) : found.type || "any";
  }

  example(schema) {
    const found = this.single(schema);
    if (found.examples) return found.examples[0];
    if (found.default !== undefined && found.default !== null) return found.default;
    if (found.enum) return found.enum[0];
    if (found.type === "object") {
      const required = (found.required || []).map((name) => [name, this.example(found.properties[name])]);
      return Object.fromEntries(required);
    }
    return { string: "", integer: 0, number: 0, boolean: false, array: [] }[found.type] ?? null;
  }
}

async function send(method, path, inputs, body, answer) {
  let where = path;
  const query = new URLSearchParams();
  for (const [parameter, input] of inputs) {
    if (parameter.in === "path") where = where.replace("{" + parameter.name + "}", encodeURIComponent(input.value));
    else if (input.value) query.set(parameter.name, input.value);
  }
  const headers = {};
  const token = document.getElementById("token").value;
  if (token) headers.Authorization = "Bearer " + token;
  if (body && body.value.trim()) headers["Content-Type"] = "application/json";
  answer.hidden = false;
  answer.textContent = "...";
  try {
    const options = { method, headers, body: headers["Content-Type"] && body.value };
    const response = await fetch("." + where + (query.size ? "?" + query : ""), options);
    const text = await response.text();
    const shown = text && (response.headers.get("content-type") || "").includes("json")
      ? JSON.stringify(JSON.parse(text), null, 2) : text;
    answer.textContent = response.status + " " + response.statusText + "\n" + shown;
  } catch (error) {
    answer.textContent = String(error);
  }
}

function shown(description, path, method, operation) {
  const details = made("details", undefined, { id: operation.operationId });
  const summary = made("summary");
  const first = (operation.description || "").split(/[.;](?:\s|$)/)[0];
  summary.append(made("b", method.toUpperCase()), " ", made("code", path), " ", made("span", first));
  details.append(summary, made("p", operation.description || ""));
  const form = made("form");
  const inputs = (operation.parameters || []).map((parameter) => {
    const input = made("input", undefined, { required: parameter.required || false });
    const label = made("label", parameter.name + " (" + description.type(parameter.schema) + ") ");
    label.append(input);
    form.append(label);
    return [parameter, input];
  });
  let body = null;
  if (operation.requestBody) {
    const schema = operation.requestBody.content["application/json"].schema;
    const example = description.example(schema);
    body = made("textarea", undefined, { rows: 4, value: JSON.stringify(example, null, 2) });
    const table = made("table");
    for (const [name, field] of Object.entries(description.single(schema).properties || {})) {
      const row = made("tr");
      const said = description.resolved(field);
      row.append(made("td", name), made("td", description.type(field)), made("td", said.description || ""));
      table.append(row);
    }
    form.append(body, table);
  }
  const answer = made("pre", undefined, { hidden: true });
  form.append(made("button", "Send"), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(method.toUpperCase(), path, inputs, body, answer);
  });
  details.append(form);
  return details;
}

async function show() {
  const root = await (await fetch("openapi.json")).json();
  const description = new Description(root);
  document.getElementById("description").textContent = root.info.description;
  const operations = document.getElementById("operations");
  const sections = new Map();
  for (const [path, methods] of Object.entries(root.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = (operation.tags || ["other"])[0];
      if (!sections.has(tag)) sections.set(tag, [made("h2", tag)]);
      sections.get(tag).push(shown(description, path, method, operation));
    }
  }
  operations.replaceChildren(...[...sections.values()].flat());
  if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
}

show().catch((error) => { document.getElementById("operations").textContent = String(error); });
