// The table of store partitions. Only the rows that can be seen are in the page, so 10,000 scroll as lightly as ten.

import { Ago, Badge, Bar, RunLink, h, number, stop } from "./parts.js";

const { useEffect, useRef, useState } = globalThis.React;

const ROW_PX = 40;
const SPARE = 8;

/** How urgent a level is; rows are sorted by it unless a column was chosen. */
export const LEVELS = ["bad", "warn", "busy", "notice", "good"];
export const LEVEL_WORDS = { bad: "need work", warn: "behind or in doubt", busy: "unknown", notice: "whole, old format", good: "whole" };

/** What a row's badge says: the status, or what makes it worse than that. */
export const word = (row) => (row.doubt ?? row.status).toUpperCase();

export const label = (row) => `${row.application}/${row.store}/${row.task}`;

const finished = (row, job, runs) => (row[job] ? runs[row[job].run].finished_ms : 0);

/** Columns: title, what is sorted by, what is shown; `spare` ones are left out where there is no room, see style.css. */
const COLUMNS = [
  { title: "Store partition", key: null, cell: (row) => h(Name, { row }) },
  { title: "Status", key: (row) => LEVELS.indexOf(row.level), cell: (row, { restoring }) => h(Status, { row, restoring }) },
  { title: "Lag", key: (row) => -(row.lag ?? -1), number: true, cell: (row) => number(row.lag) },
  { title: "Last verification", key: (row, runs) => finished(row, "verify", runs), cell: (row, at) => h(Run, { row, job: "verify", ...at }) },
  { title: "Last restore", spare: true, key: (row, runs) => -finished(row, "restore", runs), cell: (row, at) => h(Restore, { row, ...at }) },
  { title: "Restore point", spare: true, key: (row) => -(row.restore_point?.written_ms ?? 0), cell: (row, at) => h(RestorePoint, { row, ...at }) },
  { title: "Verdict", key: (row) => row.validate?.verdict ?? "~", cell: (row, at) => h(Verdict, { row, ...at }) },
  { title: "", spare: true, key: undefined, cell: (row, { onRestore }) => h(RestoreButton, { row, onRestore }) },
];

const kind = (column) => (column.number ? "ss-number" : column.spare ? "ss-spare" : undefined);

/** A button, for those who use the keyboard: its click is the row's. */
const Name = ({ row }) =>
  h("button", { className: "ss-name", title: label(row) }, h("span", { className: "ss-muted" }, `${row.application}/`), `${row.store}/${row.task}`);

function Status({ row, restoring }) {
  const now = restoring.get(label(row));
  if (!now) return h(Badge, { level: row.level, word: word(row) });
  const share = now.total ? ` ${Math.floor((100 * now.done) / now.total)} %` : "";
  return h("span", { className: "ss-live" }, h(Badge, { level: "live", word: `RESTORING${share}` }), h(Bar, { done: now.done, total: now.total, label: "restored" }));
}

function Run({ row, job, runs, now }) {
  const run = row[job] && runs[row[job].run];
  return h(RunLink, { run }, run && h(Ago, { ms: run.finished_ms, now }));
}

const Restore = ({ row, ...at }) =>
  row.restore
    ? h("span", { className: row.restore.outcome === "failed" ? "ss-text-bad" : undefined }, `${row.restore.outcome} `, h(Run, { row, job: "restore", ...at }))
    : "–";

/** How old the snapshot is that a restore would begin with. */
function RestorePoint({ row, now }) {
  const point = row.restore_point;
  if (!point) return "–";
  if (!point.usable) return h("span", { className: "ss-text-warn" }, "none");
  return h(Ago, { ms: point.written_ms, now });
}

function Verdict({ row, runs, now }) {
  const { validate } = row;
  if (!validate) return "–";
  const mark = { passed: "ss-text-good", failed: "ss-text-bad", error: "ss-text-warn" }[validate.verdict];
  return h(
    "span",
    { className: mark },
    validate.data_docs ? h("a", { href: validate.data_docs, target: "_blank", rel: "noopener", onClick: stop, title: "Open its Data Docs" }, validate.verdict) : validate.verdict,
    " ",
    h("span", { className: "ss-muted" }, h(Run, { row, job: "validate", runs, now })),
  );
}

function RestoreButton({ row, onRestore }) {
  const fill = { application: row.application, stores: [row.store], partitions: [Number(row.task.split("_").pop())] };
  return h(
    "button",
    { className: "ss-button ss-small", "aria-label": `Restore ${label(row)}`, onClick: (event) => (stop(event), onRestore(fill)) },
    "Restore…",
  );
}

/** Sort by a column; by urgency if none was chosen. Rows come in the order of their names, which decides ties. */
export function sorted(rows, runs, order) {
  const column = COLUMNS[order.column];
  if (column.key === null) return order.down ? [...rows].reverse() : rows;
  const keyed = rows.map((row) => [column.key(row, runs), row]);
  const direction = order.down ? -1 : 1;
  keyed.sort(([one], [other]) => (one < other ? -direction : one > other ? direction : 0));
  return keyed.map(([, row]) => row);
}

export function Table({ rows, chosen, order, onOrder, onChoose, ...at }) {
  const scroller = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const node = scroller.current;
    const look = () => setView({ top: node.scrollTop, height: node.clientHeight });
    const resized = new ResizeObserver(look);
    resized.observe(node);
    node.addEventListener("scroll", look, { passive: true });
    return () => (resized.disconnect(), node.removeEventListener("scroll", look));
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / ROW_PX), rows.length) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + SPARE);
  const gap = (count) => count > 0 && h("tr", { "aria-hidden": true, style: { height: count * ROW_PX } }, h("td", { colSpan: COLUMNS.length }));
  return h(
    "div",
    { className: "ss-scroll", ref: scroller, tabIndex: 0, role: "region", "aria-label": "Store partitions" },
    h(
      "table",
      { className: "ss-table", "aria-rowcount": rows.length + 1 },
      h("thead", null, h("tr", null, COLUMNS.map((column, index) => h(Heading, { key: index, column, index, order, onOrder })))),
      h(
        "tbody",
        null,
        gap(first),
        rows.slice(first, last).map((row, index) =>
          h(
            "tr",
            {
              key: label(row),
              "aria-rowindex": first + index + 2,
              "aria-selected": chosen === label(row),
              "data-partition": label(row),
              onClick: () => onChoose(row),
            },
            COLUMNS.map((column, place) => h("td", { key: place, className: kind(column) }, column.cell(row, at))),
          ),
        ),
        gap(rows.length - last),
      ),
    ),
  );
}

function Heading({ column, index, order, onOrder }) {
  const chosen = order.column === index;
  const sort = chosen ? (order.down ? "descending" : "ascending") : undefined;
  const turn = () => onOrder({ column: index, down: chosen ? !order.down : false });
  return h(
    "th",
    { scope: "col", "aria-sort": sort, className: kind(column) },
    column.key === undefined ? null : h("button", { onClick: turn }, column.title, chosen && (order.down ? " ▾" : " ▴")),
  );
}
