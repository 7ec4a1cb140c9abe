// Beside the table: what is known of one store partition, what its store's past was, and where to look further.

import { drills, history, url } from "./data.js";
import { Ago, Badge, RunLink, Since, duration, h, number, size, took } from "./parts.js";
import { DRILLS, Plot, VERIFICATIONS } from "./plot.js";
import { PROVEN_COLOURS, label } from "./table.js";
import { StartButton, offers } from "./start-button.js";

const { useEffect, useRef, useState } = globalThis.React;

export function Panel({ row, restoring, now, onClose, onStart }) {
  const close = useRef(null);
  useEffect(() => close.current.focus({ preventScroll: true }), []);
  const progress = restoring.get(label(row));
  const leave = (event) => event.key === "Escape" && !event.defaultPrevented && onClose();
  return h(
    "aside",
    { className: "ss-panel", "aria-label": label(row), onKeyDown: leave },
    h("header", null, h("h3", null, label(row)), h("button", { className: "ss-close", ref: close, "aria-label": "Close", onClick: onClose }, "×")),
    h("p", null, h(Badge, { level: row.level, word: row.word }), row.since_ms && h("small", { className: "ss-muted" }, " since ", h(Since, { ms: row.since_ms, now }))),
    h("p", { className: "ss-action" }, progress ? "A restore is in progress. No action is needed until it ends." : row.action),
    !progress && row.command && h("p", null, "Command: ", h("code", null, row.command)),
    row.detail && h("p", { className: "ss-detail" }, row.detail),
    row.validate?.rollback && h("p", null, "To put the replaced store back: ", h("code", null, row.validate.rollback)),
    h(
      "p",
      { className: "ss-buttons" },
      !progress && row.button && h(StartButton, { row, name: row.button, primary: true, onStart }),
      ["restore", "verify", "process"].filter((name) => offers(row, name) && (progress || name !== row.button)).map((name) => h(StartButton, { key: name, row, name, onStart })),
    ),
    row.proven_ms && h("p", null, "Rows last proven ", h(Ago, { ms: row.proven_ms, now }), "."),
    row.verify && row.starts && !row.proven_ms && h("p", null, "Rows not proven yet: verify at depth deep."),
    h("dl", null, facts(row).map(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name}=` }, value)])),
    row.restore_point && h(RestorePoint, { point: row.restore_point, now }),
    row.drill && h(Drill, { drill: row.drill, now }),
    h("h4", null, "Last runs"),
    h("ul", { className: "ss-runs" }, ["verify", "restore", "validate", "process", "drill"].map((job) => row[job] && h(Done, { key: job, job, row, now }))),
    row.validate?.data_docs && h("p", null, h("a", { href: url(row.validate.data_docs), target: "_blank", rel: "noopener" }, "Data Docs of the last validation")),
    h("h4", null, `Verifications of ${row.store}, all partitions`),
    h(Past, { load: history, plot: VERIFICATIONS, application: row.application, store: row.store, latest: row.verify?.run.finished_ms }),
    row.drill && h("h4", null, `Restore drills of ${row.store}, all partitions`),
    row.drill && h(Past, { load: drills, plot: DRILLS, application: row.application, store: row.store, latest: row.drill.run.finished_ms }),
  );
}

const facts = (row) =>
  [
    ["Lag", row.lag],
    ["Committed offset", row.committed],
    ["Offset on disk", row.disk_offset],
    ["Offsets not on disk yet", row.disk_lag],
    ["End of the changelog", row.end],
    ["Rows", row.keys],
    ["Input left to process", row.process?.lag],
    ["Dead letters, last run", row.process?.dead_letters],
    ["Late records, last run", row.process?.late],
    ["Dropped records, last run", row.process?.dropped],
    ["Commits, last run", row.process?.commits],
  ]
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, number(value)])
    .concat(latency(row.process));

/** How long the commits of the last run took. */
const latency = (process) =>
  process?.latency_avg_ms === undefined ? [] : [["Commit latency", `${milliseconds(process.latency_avg_ms)} on average, ${milliseconds(process.latency_max_ms)} at most`]];

const milliseconds = (value) => (value >= 1000 ? took(value / 1000) : `${value < 10 ? value.toFixed(1) : number(value)} ms`);

/** The snapshot that a restore would begin with, as the last verification found it. */
function RestorePoint({ point, now }) {
  const left = point.until_ms === undefined ? undefined : (point.until_ms - now) / 1000;
  return h(
    "section",
    { "aria-label": "Last restore point" },
    h("h4", null, "Last restore point"),
    point.snapshot && h("p", null, `Offset ${number(point.committed)}, published `, h(Ago, { ms: point.written_ms, now }), "."),
    point.usable &&
      h("p", null, `A restore from this snapshot fetches up to ${size(point.fetched ?? 0)} and reads ${number(point.offsets ?? 0)} changelog offsets.`),
    point.usable &&
      left !== undefined &&
      h("p", { className: left > 0 ? undefined : "ss-text-warn" }, left > 0 ? `It can be used for another ${duration(left)}.` : "It is now too old: deletes may be missing from the changelog."),
    !point.usable && h("p", { className: "ss-text-warn" }, "No snapshot can be used."),
    point.detail && h("p", { className: "ss-detail" }, point.detail),
  );
}

/** What restore drills show of the store partition. */
function Drill({ drill, now }) {
  const within = drill.within_seconds === undefined ? "" : `, objective ${took(drill.within_seconds)}`;
  return h(
    "section",
    { "aria-label": "Restore drills" },
    h("h4", null, "Restore drills"),
    h("p", { className: PROVEN_COLOURS[drill.standing] }, drill.standing),
    drill.drilled_ms !== undefined &&
      h("p", null, `Restored in ${took(drill.seconds)}${within}, ${number(drill.rows)} rows compared, `, h(Ago, { ms: drill.drilled_ms, now }), drill.evidence !== undefined && `, evidence ${number(drill.evidence)}`, "."),
    drill.detail && h("p", { className: "ss-detail" }, drill.detail),
  );
}

function Done({ job, row, now }) {
  const run = row[job].run;
  const verdict = row.validate && `${row.validate.verdict}${row.validate.current ? "" : ", outdated"}`;
  const said = { verify: row.verify?.depth && `depth ${row.verify.depth}`, restore: row.restore?.outcome, validate: verdict, drill: row.drill?.standing }[job];
  return h(
    "li",
    null,
    h(RunLink, { run }, job),
    said ? `, ${said}, ` : ", ",
    h(Ago, { ms: run.finished_ms, now }),
    " · ",
    h("a", { href: url(run.report), target: "_blank", rel: "noopener" }, "report"),
    row[job].message && h("p", { className: "ss-detail" }, row[job].message),
    row[job].failed?.length > 0 && h("p", { className: "ss-detail" }, `Failed: ${row[job].failed.join(", ")}`),
  );
}

/** The plot, asked for when the panel opens and when there is a new verification. */
function Past({ load, plot, application, store, latest }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let ended = false;
    load(application, store).then(
      (answer) => ended || setFound(answer),
      (error) => ended || setFound({ points: [], problems: [{ path: "history", message: error.message }] }),
    );
    return () => (ended = true);
  }, [load, application, store, latest]);
  if (!found) return h("p", { className: "ss-muted" }, "Reading …");
  return h(
    "div",
    null,
    h(Plot, { points: found.points, of: plot }),
    found.problems.map((problem) => h("p", { key: problem.path, className: "ss-muted" }, `${problem.path}: ${problem.message}`)),
  );
}
