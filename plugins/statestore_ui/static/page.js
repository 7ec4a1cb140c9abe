// The page "State stores": which are healthy, what is being rebuilt and how far, and what was wrong.

import { dagId, overview, url, usePolled } from "./data.js";
import { Panel } from "./panel.js";
import { usePartition, usePartitions } from "./partitions.js";
import { Ago, Badge, Drills, Notice, h, many, number, useNow } from "./parts.js";
import { Running, useRunning } from "./running.js";
import { StartDialog } from "./start.js";
import { LEVELS, Table, label, levelCount } from "./table.js";

const { useCallback, useState } = globalThis.React;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

const EVERY_MS = 10_000;

export function StateStores() {
  const { data, error, reload } = usePolled(overview, EVERY_MS);
  const running = useRunning(reload);
  const now = useNow();
  const [params, setParams] = useSearchParams();
  const [order, setOrder] = useState({ by: "status", down: false });
  const [start, setStart] = useState(null);
  const onStart = useCallback((dag, fill) => setStart({ dag, fill }), []);
  const filter = Object.fromEntries(["q", "level", "application", "chosen"].map((name) => [name, params.get(name) ?? ""]));
  const set = (changes) =>
    setParams(
      (before) => {
        for (const [name, value] of Object.entries(changes)) value ? before.set(name, value) : before.delete(name);
        return before;
      },
      { replace: true },
    );
  const found = usePartitions({ application: filter.application, level: filter.level, q: filter.q, ...order }, data);
  const chosen = usePartition(filter.chosen, data);
  const at = { now, onStart, restoring: running.restoring };
  const stores = data?.applications.length > 0;
  const failed = error ?? found.error;
  return h(
    "div",
    { className: "ss-root ss-page" },
    h(
      "header",
      { className: "ss-head" },
      h("h2", null, "State stores"),
      data && h("span", { className: "ss-muted" }, "newest report ", h(Ago, { ms: data.as_of_ms, now })),
    ),
    failed && h(Notice, { level: "bad", title: data ? "Not up to date." : "Nothing to show." }, failed),
    data?.degraded &&
      h(
        Notice,
        { level: "bad", title: "No job starts." },
        `${data.degraded.reason}. Found `,
        h(Ago, { ms: data.degraded.found_ms, now }),
        ". ",
        h("code", null, "statestore metastore status"),
        " shows the current reason; docs/metastore.md explains what to do.",
      ),
    data?.problems.map((problem) => h(Notice, { key: problem.path, title: problem.path }, problem.message)),
    data?.more_problems > 0 && h(Notice, { title: many(data.more_problems, "more file") }, "cannot be read."),
    data?.surveys?.map((survey) => h(Survey, { key: survey.run.report, survey, now })),
    h(Running, running),
    stores && h(Applications, { data, filter, set, now, onStart }),
    data && !stores && data.problems.every((problem) => problem.missing) && h(Empty),
    stores && h(Filters, { found, filter, set }),
    stores &&
      h(
        "div",
        { className: "ss-body" },
        h(Table, {
          total: found.total,
          row: found.row,
          look: found.look,
          chosen: filter.chosen,
          order,
          onOrder: setOrder,
          onChoose: (row) => set({ chosen: label(row) === filter.chosen ? "" : label(row) }),
          ...at,
        }),
        chosen && h(Panel, { key: label(chosen), row: chosen, onClose: () => set({ chosen: "" }), ...at }),
      ),
    start && h(StartDialog, { ...start, onClose: () => setStart(null), onStarted: running.reload }),
  );
}

/** The last survey of an environment: figures, age, and a link to its page. */
function Survey({ survey, now }) {
  const { risks, unread, applications, run } = survey;
  const level = risks || unread ? "warn" : "good";
  return h(
    Notice,
    { level, title: `Survey${survey.environment && ` of ${survey.environment}`}: ${many(risks, "risk")}.` },
    `Cluster ${survey.cluster}, ${many(applications, "application")}${unread ? `, ${many(unread, "fact")} not read` : ""}`,
    survey.not_looked_at.length > 0 && `, not looked at: ${survey.not_looked_at.join(", ")}`,
    ", ",
    h(Ago, { ms: survey.started_ms, now }),
    ". ",
    h("a", { href: url(run.report.replace("/reports/survey/", "/surveys/")), target: "_blank", rel: "noopener" }, "Open the survey"),
  );
}

const STARTS = [
  ["restore", "Restore"],
  ["verify", "Verify"],
  ["process", "Process"],
];

/** One card for each application; choosing one filters the table. */
function Applications({ data, filter, set, now, onStart }) {
  return h(
    "ul",
    { className: "ss-applications" },
    data.applications.map((each) => {
      const chosen = filter.application === each.application;
      return h(
        "li",
        { key: each.application, "aria-current": chosen || undefined },
        h("button", { className: "ss-choose", "aria-pressed": chosen, onClick: () => set({ application: chosen ? "" : each.application }) }, each.application),
        h("div", null, LEVELS.filter((level) => each.levels[level]).map((level) => h(Badge, { key: level, level, word: levelCount(level, each.levels[level]) }))),
        h("small", { className: "ss-muted" }, `${many(each.partitions, "store partition")}, lag ${number(each.lag)}, verified `, h(Ago, { ms: each.verified_ms, now })),
        each.drills && h(Drills, { drills: each.drills }),
        h(
          "div",
          { className: "ss-buttons" },
          STARTS.filter(([dag]) => each.starts.includes(dag)).map(([dag, name]) =>
            h("button", { key: dag, className: "ss-button ss-small", "aria-label": `${name} ${each.application}`, onClick: () => onStart(dag, { application: each.application }) }, `${name}…`),
          ),
        ),
      );
    }),
  );
}

function Filters({ found, filter, set }) {
  return h(
    "div",
    { className: "ss-filters", role: "search" },
    h("input", {
      type: "search",
      placeholder: "Find by application, store, task, or status",
      "aria-label": "Find store partitions",
      value: filter.q,
      onChange: (event) => set({ q: event.target.value }),
    }),
    LEVELS.filter((level) => found.levels[level] || filter.level === level).map((level) =>
      h(
        "button",
        { key: level, className: "ss-chip", "aria-pressed": filter.level === level, onClick: () => set({ level: filter.level === level ? "" : level }) },
        h(Badge, { level, word: levelCount(level, found.levels[level] ?? 0) }),
      ),
    ),
    h("span", { className: "ss-muted", role: "status" }, found.loaded && `${number(found.total)} of ${number(found.of)} shown`),
  );
}

const dagLink = (dag) => h(Link, { to: `/dags/${encodeURIComponent(dagId(dag))}` }, dagId(dag));

const Empty = () =>
  h(
    "div",
    { className: "ss-empty" },
    h("h3", null, "No store yet"),
    h("p", null, "Stores appear here after their first run. To start:"),
    h(
      "ol",
      null,
      h("li", null, "Define an application and its stores: start the DAG ", dagLink("metastore"), " with the YAML of your definitions, or use the command ", h("code", null, "statestore apply"), "."),
      h("li", null, "Turn on the DAG ", dagLink("process"), ", or start it manually: it reads the input and fills the stores."),
      h("li", null, "Turn on the DAG ", dagLink("verify"), ": it follows process, and starts restore if a store must be rebuilt."),
    ),
    h("p", null, "To see a Kafka Streams application, list its name and state directory in the file of ", h("code", null, "STATESTORE_ENVIRONMENTS"), ", and start verify of its environment. It needs no definition, and keeps running."),
  );
