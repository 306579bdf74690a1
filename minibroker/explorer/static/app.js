// The shell: which view is shown, what is always visible, and the keys that work everywhere.

import { html, render, signal, useEffect } from "./core/lib.js";
import { place, address, go } from "./core/places.js";
import { connected, get, needsToken, setToken } from "./core/server.js";
import { state, watch } from "./core/frames.js";
import { isDark, moment } from "./core/text.js";
import { LessonPanel } from "./components/lesson.js";
import { VIEWS } from "./views/all.js";

const about = signal(null);
const failed = signal("");
const THEME = "minibroker-theme";

const kept = localStorage.getItem(THEME);
if (kept) document.documentElement.dataset.theme = kept;

function turnTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
  dispatchEvent(new Event("themechange"));
}

async function begin() {
  try {
    about.value = await get("about");
    failed.value = "";
    if (about.value.views.includes("frames")) await watch();
  } catch (error) {
    failed.value = error.message;
  }
}

function App() {
  useEffect(() => {
    const pressed = (event) => {
      if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = shown()[Number(event.key) - 1];
      if (view) go(view.id);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [place.value.view, about.value]);
  if (needsToken.value) return html`<${Token}/>`;
  if (failed.value && !about.value) return html`<p class="notice bad">${failed.value}</p>`;
  if (!about.value) return html`<header><${Brand}/></header>`; // the browser loads its fonts meanwhile
  const found = shown().find((view) => view.id === place.value.view) || shown()[0];
  return html`<${Bar}/><nav aria-label="Views">${shown().map((view, at) => html`
      <a href=${address(view.id)} aria-current=${view.id === found.id ? "page" : undefined} title=${`${view.title} (${at + 1})`}>
        <span class="icon" aria-hidden="true">${view.icon}</span>${view.title}</a>`)}</nav>
    <main id="view" aria-label=${found.title}><h1 class="hidden">${found.title}</h1><${found.View} key=${found.id} names=${place.value.names} query=${place.value.query} about=${about.value}/></main>
    ${found.id !== "lessons" && about.value.views.includes("lessons") ? html`<${LessonPanel}/>` : ""}`;
}

const shown = () => VIEWS.filter((view) => about.value.views.includes(view.needs || view.id));

const Brand = () => html`<a class="brand" href="#/"><img src="icon.svg" alt="" width="20" height="20"/>minibroker</a>`;

function Bar() {
  const now = state.value;
  return html`<header>
    <${Brand}/>
    <span class="servers mono">${about.value.bootstrap_servers || about.value.path}</span>
    ${now && html`<span class="now mono" title="The broker's time">${moment(now.now_ms)}${now.frozen ? html` <b class="chip">frozen</b>` : ""}</span>`}
    ${now && now.faults > 0 && html`<b class="chip fault">${now.faults} ${now.faults === 1 ? "fault" : "faults"}</b>`}
    <span class="grow"></span>
    ${about.value.bootstrap_servers && html`<span class=${`live ${connected.value && now?.running ? "on" : ""}`} role="status">
      ${!connected.value ? "no connection" : now && !now.running ? "broker is down" : "live"}</span>`}
    <button class="plain" onClick=${turnTheme} aria-label="Switch between light and dark">◐</button>
  </header>`;
}

function Token() {
  const submitted = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    begin();
  };
  return html`<main class="login"><form onSubmit=${submitted}><h1>minibroker explorer</h1>
    <label>The token of this broker (--control-token)<input name="token" type="password" autocomplete="off" autofocus required/></label>
    <button>Open</button></form></main>`;
}

render(html`<${App}/>`, document.body);
begin();
