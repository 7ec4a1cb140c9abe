// A button that opens the form of a DAG, filled in for one store partition.

import { h, stop } from "./parts.js";

/** Each form: the text of its button, its DAG, and what it is filled in with. */
const FORMS = {
  restore: ["Restore…", "restore", (row) => onlyThis(row)],
  verify: ["Verify…", "verify", (row) => ({ application: row.application })],
  process: ["Process…", "process", (row) => ({ application: row.application })],
  reseed: ["Reseed…", "rewrite", (row) => ({ what: "reseed", application: row.application, stores: [row.store] })],
};

/** What a form is filled in with for one store partition; a row without a task stands for the application. */
function onlyThis(row) {
  if (row.task === "-") return { application: row.application };
  const partition = Number(row.task.split("_").pop());
  return { application: row.application, stores: [row.store], partitions: Number.isNaN(partition) ? [] : [partition] };
}

/** Whether a form makes sense for a store partition. */
export const offers = (row, name) => row.starts === undefined || row.starts.includes(name);

export function StartButton({ row, name, primary, small, title, onStart }) {
  const [text, dag, fill] = FORMS[name];
  const className = ["ss-button", primary && "ss-primary", small && "ss-small"].filter(Boolean).join(" ");
  return h("button", { className, "aria-label": title, onClick: (event) => (stop(event), onStart(dag, fill(row))) }, text);
}
