// A list of which only the visible rows are elements, so that a hundred thousand cost as much as fifty.
// It is a listbox: arrows, Page Up and Down, Home and End move the selection.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/lib.js";

const SPARE = 8; // rows above and below what is visible

export function Rows({ count, height, row, selected = -1, select, label, follow = false, id, className = "", open }) {
  const box = useRef();
  const [view, setView] = useState({ top: 0, size: 600 });
  const isAtEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current;
    const seen = () => setView({ top: element.scrollTop, size: element.clientHeight });
    const observer = new ResizeObserver(seen);
    observer.observe(element);
    seen();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (follow && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [count, follow, view.size]);

  useEffect(() => {
    if (selected < 0) return;
    const element = box.current;
    const top = selected * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight;
    isAtEnd.current = selected >= count - 1;
  }, [selected, view.size]);

  const scrolled = (event) => {
    const element = event.currentTarget;
    isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - height;
    setView({ top: element.scrollTop, size: element.clientHeight });
  };

  const pressed = (event) => {
    const page = Math.max(Math.floor(view.size / height) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count, j: 1, k: -1 };
    if (event.key === "Enter" && open && selected >= 0) {
      open(selected);
    } else if (event.key in steps && count && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      select(Math.min(Math.max(selected + steps[event.key], 0), count - 1));
    }
  };

  const first = Math.max(Math.floor(view.top / height) - SPARE, 0);
  const last = Math.min(first + Math.ceil(view.size / height) + 2 * SPARE, count);
  const rows = [];
  for (let at = first; at < last; at += 1) {
    rows.push(html`<div key=${at} id=${`${id}-${at}`} role="option" aria-selected=${at === selected} aria-setsize=${count} aria-posinset=${at + 1}
      class=${`row ${at === selected ? "selected" : ""}`} style=${{ top: `${at * height}px`, height: `${height}px` }}
      onClick=${() => select(at)}>${row(at)}</div>`);
  }
  return html`<div ref=${box} class=${`rows ${className}`} id=${id} role="listbox" tabindex="0" aria-label=${label}
      aria-activedescendant=${selected >= first && selected < last ? `${id}-${selected}` : undefined} onScroll=${scrolled} onKeyDown=${pressed}>
    <div class="space" role="presentation" style=${{ height: `${count * height}px` }}>${rows}</div>
  </div>`;
}
