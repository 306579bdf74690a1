// The batches that a partition remembers of a producer, to know a repeated one.

import { html } from "../core/lib.js";

export const Batches = ({ batches }) => batches.map((batch) =>
  html`<i class="tagged">${batch.first_sequence}–${batch.last_sequence} at ${batch.last_offset - batch.offset_delta}–${batch.last_offset}</i>`);
