// What every module of the page uses: Preact, its hooks, htm and signals.

import { h, render, Component, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Component, Fragment };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "../vendor/hooks.js";
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from "../vendor/signals.js";
