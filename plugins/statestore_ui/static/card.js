// The card on Airflow's dashboard: how many store partitions are healthy, which applications are not, what is being restored.

import { overview, progress, usePolled } from "./data.js";
import { Badge, Bar, Drills, h, many, number } from "./parts.js";
import { LEVELS, levelCount } from "./table.js";

const { Link } = globalThis.ReactRouterDOM;

const PAGE = "/plugin/state-stores";
const MOST = 5;

export function Card() {
  const { data, error } = usePolled(overview, 15_000);
  const restores = (usePolled(progress, 5_000).data?.work ?? []).filter((work) => work.job === "restore");
  const applications = data?.applications ?? [];
  const count = (level) => applications.reduce((sum, each) => sum + (each.levels[level] ?? 0), 0);
  const troubled = applications.filter((each) => each.levels.bad || each.levels.warn);
  return h(
    "section",
    { className: "ss-root ss-card", "aria-label": "State stores" },
    h("h3", null, h(Link, { to: PAGE }, "State stores")),
    error && h("p", { className: "ss-text-bad" }, error),
    data && applications.length === 0 && h("p", { className: "ss-muted" }, data.problems[0]?.message ?? "No store yet. The page explains how to start."),
    h(
      "p",
      null,
      LEVELS.filter(count).map((level) => h(Link, { key: level, to: `${PAGE}?level=${level}` }, h(Badge, { level, word: levelCount(level, count(level)) }))),
    ),
    applications.filter((each) => each.drills).slice(0, MOST).map((each) => h("p", { key: `drills-${each.application}` }, `${each.application}: `, h(Drills, { drills: each.drills }))),
    troubled.slice(0, MOST).map((each) =>
      h(
        "p",
        { key: each.application },
        h(Link, { to: `${PAGE}?${new URLSearchParams({ application: each.application })}` }, each.application),
        `: ${Object.entries(each.statuses).filter(([status]) => !["OK", "EMPTY", "OLD_FORMAT", "RESTORED"].includes(status)).map(([status, many]) => `${number(many)} ${status}`).join(", ")}`,
      ),
    ),
    troubled.length > MOST && h("p", { className: "ss-muted" }, `and ${many(troubled.length - MOST, "more application")}`),
    restores.map((restore) =>
      h("p", { key: restore.run }, `Restoring ${many(restore.seen - restore.ended, "store partition")}, ${number(restore.records_per_s)} records/s`, h(Bar, { done: restore.done, total: restore.total, label: "offsets read" })),
    ),
  );
}
