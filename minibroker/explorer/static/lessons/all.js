// All lessons in their order: each has a name, a title, texts and tables, the topics that it works with, and steps.

import { FIRST_REQUESTS } from "./first_requests.js";
import { COMPACTION, LOGS } from "./logs.js";
import { GROUPS } from "./groups.js";
import { FORMATS } from "./formats.js";

export const LESSONS = [...FIRST_REQUESTS, ...LOGS, ...GROUPS, COMPACTION, ...FORMATS];
