// Data that is asked for again while it is looked at.

import { useEffect, useState } from "./lib.js";
import { get } from "./server.js";

const AGAIN_MS = 1000;

// Return [answer, error, ask again]. The answer stays while the next one is awaited.
export function useLive(path, parameters = {}, every = AGAIN_MS) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState("");
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify([path, parameters]);
  useEffect(() => {
    let timer = null;
    let isGone = false;
    const ask = async () => {
      try {
        const found = await get(path, parameters);
        if (isGone) return;
        setAnswer({ key, found });
        setError("");
      } catch (problem) {
        if (isGone) return;
        setError(problem.message);
      }
      if (every) timer = setTimeout(ask, every);
    };
    if (path) ask();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [key, turn, every]);
  return [answer && answer.key === key ? answer.found : null, error, () => setTurn(turn + 1)];
}
