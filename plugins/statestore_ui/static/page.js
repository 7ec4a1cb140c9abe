// The page "State stores": which are whole, what is being rebuilt and how far, and what was wrong.

import { overview, usePolled } from "./data.js";
import { Panel } from "./panel.js";
import { Ago, Badge, Notice, h, number, useNow } from "./parts.js";
import { RestoreDialog } from "./restore.js";
import { Running, useRunning } from "./running.js";
import { LEVELS, LEVEL_WORDS, Table, label, sorted, word } from "./table.js";

const { useMemo, useState } = globalThis.React;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

const EVERY_MS = 10_000;

export function StateStores() {
  const { data, error, reload } = usePolled(overview, EVERY_MS);
  const running = useRunning(reload);
  const now = useNow();
  const [params, setParams] = useSearchParams();
  const [order, setOrder] = useState({ column: 1, down: false });
  const [fill, setFill] = useState(null);
  const filter = Object.fromEntries(["q", "level", "application", "chosen"].map((name) => [name, params.get(name) ?? ""]));
  const set = (changes) =>
    setParams(
      (before) => {
        for (const [name, value] of Object.entries(changes)) value ? before.set(name, value) : before.delete(name);
        return before;
      },
      { replace: true },
    );
  const rows = data?.rows ?? [];
  const ofApplication = useMemo(() => rows.filter((row) => !filter.application || row.application === filter.application), [rows, filter.application]);
  const shown = useMemo(() => {
    const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => {
      const text = `${label(row)} ${word(row)}`.toLowerCase();
      return (!filter.level || row.level === filter.level) && words.every((each) => text.includes(each));
    };
    return sorted(ofApplication.filter(matches), data?.runs ?? [], order);
  }, [ofApplication, filter.q, filter.level, order]);
  const chosen = filter.chosen && rows.find((row) => label(row) === filter.chosen);
  const at = { runs: data?.runs ?? [], now, onRestore: setFill };
  return h(
    "div",
    { className: "ss-root ss-page" },
    h(
      "header",
      { className: "ss-head" },
      h("h2", null, "State stores"),
      data && h("span", { className: "ss-muted" }, "newest report ", h(Ago, { ms: data.as_of_ms, now })),
    ),
    error && h(Notice, { level: "bad", title: data ? "Not up to date." : "Nothing to show." }, error),
    data?.problems.map((problem) => h(Notice, { key: problem.path, title: problem.path }, problem.message)),
    data?.more_problems > 0 && h(Notice, { title: `${data.more_problems} more files` }, "cannot be read."),
    h(Running, running),
    data && rows.length > 0 && h(Applications, { data, filter, set, now, onRestore: setFill }),
    data && rows.length === 0 && data.problems.every((problem) => problem.missing) && h(Empty),
    rows.length > 0 && h(Filters, { rows: ofApplication, filter, set, shown }),
    rows.length > 0 &&
      h(
        "div",
        { className: "ss-body" },
        h(Table, {
          rows: shown,
          chosen: filter.chosen,
          order,
          onOrder: setOrder,
          onChoose: (row) => set({ chosen: label(row) === filter.chosen ? "" : label(row) }),
          restoring: running.restoring,
          ...at,
        }),
        chosen && h(Panel, { key: label(chosen), row: chosen, onClose: () => set({ chosen: "" }), ...at }),
      ),
    fill && h(RestoreDialog, { fill, onClose: () => setFill(null), onStarted: running.reload }),
  );
}

/** One card for each application; choosing one filters the table. */
function Applications({ data, filter, set, now, onRestore }) {
  return h(
    "ul",
    { className: "ss-applications" },
    data.applications.map((each) => {
      const chosen = filter.application === each.application;
      return h(
        "li",
        { key: each.application, "aria-current": chosen || undefined },
        h("button", { className: "ss-choose", "aria-pressed": chosen, onClick: () => set({ application: chosen ? "" : each.application }) }, each.application),
        h("button", { className: "ss-button ss-small", "aria-label": `Restore ${each.application}`, onClick: () => onRestore({ application: each.application }) }, "Restore…"),
        h("div", null, LEVELS.filter((level) => each.levels[level]).map((level) => h(Badge, { key: level, level, word: `${number(each.levels[level])} ${LEVEL_WORDS[level]}` }))),
        h("small", { className: "ss-muted" }, `${number(each.partitions)} store partitions, lag ${number(each.lag)}, verified `, h(Ago, { ms: each.verified_ms, now })),
      );
    }),
  );
}

function Filters({ rows, filter, set, shown }) {
  const count = (level) => rows.reduce((sum, row) => sum + (row.level === level), 0);
  return h(
    "div",
    { className: "ss-filters", role: "search" },
    h("input", {
      type: "search",
      placeholder: "Find by application, store, task or status",
      "aria-label": "Find store partitions",
      value: filter.q,
      onChange: (event) => set({ q: event.target.value }),
    }),
    LEVELS.filter((level) => count(level) || filter.level === level).map((level) =>
      h(
        "button",
        { key: level, className: "ss-chip", "aria-pressed": filter.level === level, onClick: () => set({ level: filter.level === level ? "" : level }) },
        h(Badge, { level, word: `${number(count(level))} ${LEVEL_WORDS[level]}` }),
      ),
    ),
    h("span", { className: "ss-muted", role: "status" }, `${number(shown.length)} of ${number(rows.length)} shown`),
  );
}

const Empty = () =>
  h(
    "div",
    { className: "ss-empty" },
    h("h3", null, "No store yet"),
    h("p", null, "Stores appear here after their first run. To get there:"),
    h(
      "ol",
      null,
      h("li", null, "Define an application and its stores: start the DAG ", h(Link, { to: "/dags/metastore" }, "metastore"), " with the YAML of your definitions, or use the command ", h("code", null, "statestore apply"), "."),
      h("li", null, "Turn on the DAG ", h(Link, { to: "/dags/process" }, "process"), ", or start it manually: it reads the input and fills the stores."),
      h("li", null, "Turn on the DAG ", h(Link, { to: "/dags/verify" }, "verify"), ": it follows process, and starts restore where a store is not whole."),
    ),
    h("p", null, "For an application of Kafka Streams, point ", h("code", null, "STATESTORE_STATE_DIR"), " at its state directory, define its stores, and start verify."),
  );
