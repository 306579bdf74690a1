// The views, in the order of the navigation. A view is shown if the server says that it has its data.

import * as frames from "./frames.js";
import * as topics from "./topics.js";
import * as schemas from "./schemas.js";
import * as groups from "./groups.js";
import * as transactions from "./transactions.js";
import * as files from "./files.js";
import * as trying from "./try.js";
import * as controls from "./controls.js";
import * as lessons from "./lessons.js";

export const VIEWS = [frames, topics, schemas, groups, transactions, files, trying, controls, lessons];
