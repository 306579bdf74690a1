// The views of the lab: its own, and those of the explorer.

import * as lab from "./lab.js";
import { VIEWS as EXPLORERS } from "./explorer.js";

export const VIEWS = [lab, ...EXPLORERS];
