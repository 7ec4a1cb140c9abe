// The page "State stores": which are healthy, what is being rebuilt and how far, and what was wrong.

import { dagId, overview, url, usePolled } from "./data.js";
import { Panel } from "./panel.js";
import { usePartition, usePartitions } from "./partitions.js";
import { Ago, Badge, Drills, Notice, Since, h, many, number, useNow } from "./parts.js";
import { Running, Stopped, useRunning } from "./running.js";
import { StartButton } from "./start-button.js";
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
    h(Stopped, { ...running, onStart }),
    stores && h(First, { data, set, now, onStart }),
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

/** Badges of a card: how many of each level, or the only status of an application whose stores are not known. */
function states({ partitions, levels, statuses }) {
  if (partitions === 0) return [[LEVELS.find((level) => levels[level]), Object.keys(statuses)[0].toUpperCase()]];
  return LEVELS.filter((level) => levels[level]).map((level) => [level, levelCount(level, levels[level])]);
}

const STARTS = [
  ["restore", "Restore"],
  ["verify", "Verify"],
  ["process", "Process"],
];

const MOST_FINDINGS = 3;

/** What needs a person first, and why: the most urgent findings, each with its next step. */
function First({ data, set, now, onStart }) {
  const [all, setAll] = useState(false);
  const { findings, more_findings: unsent } = data;
  if (findings.length === 0) {
    return h("p", { className: "ss-first ss-text-good", role: "status" }, "Nothing needs you: every store partition that was looked at is healthy.");
  }
  const shown = all ? findings : findings.slice(0, MOST_FINDINGS);
  const hidden = findings.length - shown.length + unsent;
  return h(
    "section",
    { className: "ss-first", "aria-label": "What needs you first" },
    h("ol", null, shown.map((each, index) => h(Finding, { key: `${each.label} ${each.word}`, found: each, now, set, onStart, first: index === 0 }))),
    hidden > 0 && !all && h("button", { className: "ss-more", onClick: () => setAll(true) }, `and ${many(hidden, "more finding")}`),
    all && unsent > 0 && h("p", { className: "ss-muted" }, `and ${many(unsent, "more finding")}: see the table`),
  );
}

function Finding({ found, now, set, onStart, first }) {
  const { application, level, word, partitions, names, action, detail, button, since_ms: since, label: row } = found;
  const of = { application, store: "", task: "-", ...only(row, partitions) };
  const others = partitions - names.length;
  return h(
    "li",
    { className: first ? "ss-finding ss-most-urgent" : "ss-finding" },
    h(Badge, { level, word }),
    h(
      "span",
      { className: "ss-why" },
      h("button", { className: "ss-choose", onClick: () => set({ application, level: "", q: "", chosen: row }) }, application),
      names.length > 0 && h("span", { className: "ss-muted ss-names" }, ` ${names.join(", ")}${others > 0 ? ` and ${number(others)} more` : ""}`),
      since && h("span", { className: "ss-muted" }, ", since ", h(Since, { ms: since, now })),
      ". ",
      h("span", { className: "ss-next" }, action),
      detail && h("span", { className: "ss-muted ss-reason", title: detail }, ` ${detail}`),
    ),
    button && h(StartButton, { row: of, name: button, small: true, primary: first, title: `${TITLES[button]} (${word}) ${partitions === 1 ? row : application}`, onStart }),
  );
}

const TITLES = { restore: "Restore", verify: "Verify", process: "Process", reseed: "Reseed" };

/** The names of the only store partition of a finding; of several, the form is that of the application. */
function only(row, partitions) {
  if (partitions !== 1) return {};
  const [, ...rest] = row.split("/");
  return { store: rest.slice(0, -1).join("/"), task: rest.at(-1) };
}

const MOST_CARDS = 20;

/** One card for each application, the worst first; choosing one filters the table. */
function Applications({ data, filter, set, now, onStart }) {
  const [all, setAll] = useState(false);
  const shown = all ? data.applications : data.applications.slice(0, MOST_CARDS);
  const hidden = data.applications.length - shown.length;
  return h(
    "ul",
    { className: "ss-applications", "aria-label": "Applications" },
    shown.map((each) => {
      const chosen = filter.application === each.application;
      return h(
        "li",
        { key: each.application, "aria-current": chosen || undefined },
        h("button", { className: "ss-choose", "aria-pressed": chosen, onClick: () => set({ application: chosen ? "" : each.application }) }, each.application),
        h(
          "div",
          null,
          states(each).map(([level, word]) => h(Badge, { key: level, level, word })),
          each.since_ms && h("small", { className: "ss-muted" }, "since ", h(Since, { ms: each.since_ms, now })),
        ),
        h("small", { className: "ss-muted" }, h("span", null, known(each).join(", ")), each.verified_ms && h("span", null, "verified ", h(Ago, { ms: each.verified_ms, now }))),
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
    hidden > 0 && h("li", { key: "more" }, h("button", { className: "ss-choose", onClick: () => setAll(true) }, `Show ${many(hidden, "more application")}`)),
  );
}

/** What is known of an application, in a line: nothing is said of what no report has. */
function known({ partitions, lag, input_left: left }) {
  const said = partitions === 0 ? ["no store reported yet"] : [many(partitions, "store partition")];
  if (lag !== null) said.push(`lag ${number(lag)}`);
  if (left !== null) said.push(`input left to process ${number(left)}`);
  return said;
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
