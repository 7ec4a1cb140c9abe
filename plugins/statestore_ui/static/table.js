// The table of store partitions. Only the rows that can be seen are in the page, so 100,000 scroll as lightly as ten.

import { url } from "./data.js";
import { StartButton } from "./start-button.js";
import { Ago, Badge, Bar, RunLink, h, number, stop } from "./parts.js";

const { useEffect, useRef, useState } = globalThis.React;

const ROW_PX = 40;
const SPARE = 8;

/** Levels, the worst first: rows come in this order unless a column was chosen. */
export const LEVELS = ["bad", "warn", "busy", "notice", "good"];
const LEVEL_WORDS = { bad: "need action", warn: "behind or in doubt", busy: "unknown", notice: "healthy, with a note", good: "healthy" };

/** So many of a level: "1 needs action", "2 need action". */
export const levelCount = (level, count) => `${number(count)} ${level === "bad" && count === 1 ? "needs action" : LEVEL_WORDS[level]}`;

export const label = (row) => `${row.application}/${row.store}/${row.task}`;

/** Columns: title, what is sorted by (see partition_pages.py), what is shown; those of a class are left out where there is no room, see style.css. */
const COLUMNS = [
  { title: "Store partition", by: "name", cell: (row) => h(Name, { row }) },
  { title: "Status", by: "status", cell: (row, { restoring }) => h(Status, { row, restoring }) },
  { title: "Lag", by: "lag", kind: "ss-number ss-wide", cell: (row) => number(row.lag) },
  { title: "Last verification", by: "verified", kind: "ss-wide", cell: (row, at) => h(LastRun, { row, job: "verify", ...at }) },
  { title: "Last restore", by: "restored", kind: "ss-spare", cell: (row, at) => h(Restore, { row, ...at }) },
  { title: "Restore point", by: "restore_point", kind: "ss-spare", cell: (row, at) => h(RestorePoint, { row, ...at }) },
  { title: "Verdict", by: "verdict", kind: "ss-wide", cell: (row, at) => h(Verdict, { row, ...at }) },
  { title: "Proven", by: "proven", kind: "ss-spare", cell: (row, at) => h(Proven, { row, ...at }) },
  { title: "", kind: "ss-wide ss-last", cell: (row, { onStart }) => h(RestoreButton, { row, onStart }) },
];

/** A button, for those who use the keyboard: its click is the row's. */
const Name = ({ row }) =>
  h(
    "button",
    { className: "ss-name", title: label(row) },
    h("span", { className: "ss-muted" }, row.store === "-" ? "" : `${row.application}/`),
    h("span", null, row.store === "-" ? row.application : `${row.store}/`),
    h("span", null, row.store === "-" && row.task !== "-" ? `, task ${row.task}` : row.task === "-" ? "" : row.task),
  );

function Status({ row, restoring }) {
  const now = restoring.get(label(row));
  if (!now) return h(Badge, { level: row.level, word: row.word });
  const share = now.total ? ` ${Math.floor((100 * now.done) / now.total)} %` : "";
  return h("span", { className: "ss-live" }, h(Badge, { level: "live", word: `RESTORING${share}` }), h(Bar, { done: now.done, total: now.total, label: "restored" }));
}

function LastRun({ row, job, now }) {
  const run = row[job]?.run;
  return h(RunLink, { run }, run && h(Ago, { ms: run.finished_ms, now }));
}

const Restore = ({ row, ...at }) =>
  row.restore
    ? h("span", { className: row.restore.outcome === "failed" ? "ss-text-bad" : undefined }, `${row.restore.outcome} `, h(LastRun, { row, job: "restore", ...at }))
    : "–";

/** How old the snapshot is that a restore would begin with. */
function RestorePoint({ row, now }) {
  const point = row.restore_point;
  if (!point) return "–";
  if (!point.usable) return h("span", { className: "ss-text-warn" }, "none");
  return h(Ago, { ms: point.written_ms, now });
}

/** The last verdict; in a colour only while it is about the store as it is now. */
function Verdict({ row, now }) {
  const { validate } = row;
  if (!validate) return "–";
  const docs = validate.data_docs;
  const verdict = docs ? h("a", { href: url(docs), target: "_blank", rel: "noopener", onClick: stop, title: "Open its Data Docs" }, validate.verdict) : validate.verdict;
  if (!validate.current) return h("span", { className: "ss-before", title: "The store was replaced or found damaged during or after this validation." }, verdict, ", outdated");
  const mark = { passed: "ss-text-good", failed: "ss-text-bad", error: "ss-text-warn", "not judged": "ss-text-warn" }[validate.verdict];
  return h("span", { className: mark }, verdict, " ", h("span", { className: "ss-muted" }, h(LastRun, { row, job: "validate", now })));
}

/** Colours of what restore drills show; "proven" alone is good. */
export const PROVEN_COLOURS = { proven: "ss-text-good", "never proven": "ss-muted", "proven too long ago": "ss-text-warn", "too old": "ss-text-warn", "too slow": "ss-text-warn", unproven: "ss-text-warn", failed: "ss-text-bad" };

/** What restore drills show: when the store was last proven restorable, or which objective is broken. */
function Proven({ row, now }) {
  const { drill } = row;
  if (!drill) return h("span", { className: "ss-muted" }, "–");
  const word = drill.standing === "proven" ? "" : `${drill.standing} `;
  return h(
    "span",
    { className: PROVEN_COLOURS[drill.standing], title: drill.detail },
    word,
    drill.proven_ms !== undefined && drill.standing !== "never proven" && h(RunLink, { run: drill.run }, h(Ago, { ms: drill.proven_ms, now })),
  );
}

/** Only where it helps: a healthy store partition is restored from its panel. */
function RestoreButton({ row, onStart }) {
  if (row.button !== "restore" && row.button !== "reseed") return null;
  const name = row.button;
  const title = `${name === "reseed" ? "Reseed" : "Restore"} ${label(row)}`;
  return h(StartButton, { row, name, small: true, title, onStart });
}

export function Table({ total, row, look, chosen, order, onOrder, onChoose, ...at }) {
  const scroller = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const node = scroller.current;
    const moved = () => setView({ top: node.scrollTop, height: node.clientHeight });
    const resized = new ResizeObserver(moved);
    resized.observe(node);
    node.addEventListener("scroll", moved, { passive: true });
    return () => (resized.disconnect(), node.removeEventListener("scroll", moved));
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / ROW_PX), total) - SPARE);
  const last = Math.min(total, Math.ceil((view.top + view.height) / ROW_PX) + SPARE);
  useEffect(() => look(first, last), [first, last, look]);
  const gap = (count) => count > 0 && h("tr", { "aria-hidden": true, style: { height: count * ROW_PX } }, h("td", { colSpan: COLUMNS.length }));
  return h(
    "div",
    { className: "ss-scroll", ref: scroller, tabIndex: 0, role: "region", "aria-label": "Store partitions" },
    h(
      "table",
      { className: "ss-table", "aria-rowcount": total + 1 },
      h("thead", null, h("tr", null, COLUMNS.map((column, index) => h(Heading, { key: index, column, order, onOrder })))),
      h(
        "tbody",
        null,
        gap(first),
        Array.from({ length: Math.max(last - first, 0) }, (_, place) => {
          const index = first + place;
          const found = row(index);
          if (!found) return h("tr", { key: index, "aria-rowindex": index + 2 }, h("td", { colSpan: COLUMNS.length, className: "ss-muted" }, "…"));
          const name = label(found);
          return h(
            "tr",
            { key: name, "aria-rowindex": index + 2, "aria-selected": chosen === name, "data-partition": name, onClick: () => onChoose(found) },
            COLUMNS.map((column, at_) => h("td", { key: at_, className: column.kind }, column.cell(found, at))),
          );
        }),
        gap(total - last),
      ),
    ),
  );
}

function Heading({ column, order, onOrder }) {
  const chosen = column.by && order.by === column.by;
  const sort = chosen ? (order.down ? "descending" : "ascending") : undefined;
  return h(
    "th",
    { scope: "col", "aria-sort": sort, className: column.kind },
    column.by && h("button", { onClick: () => onOrder({ by: column.by, down: chosen ? !order.down : false }) }, column.title, chosen && (order.down ? " ▾" : " ▴")),
  );
}
