// What is at work now: restores with their progress, and runs of the other DAGs.

import { activeRuns, isOf, progress, usePolled } from "./data.js";
import { Bar, RunLink, duration, h, number, size } from "./parts.js";
import { label } from "./table.js";

const { useEffect, useMemo, useRef } = globalThis.React;

const SILENT_S = 120;

/** Restores and runs of now, polled more often while something is at work; `onEnded` is called when a run has ended. */
export function useRunning(onEnded) {
  const busy = useRef(false);
  const restores = usePolled(progress, busy.current ? 2_000 : 5_000);
  const active = usePolled(activeRuns, busy.current ? 3_000 : 5_000);
  const found = restores.data?.restores ?? [];
  const runs = active.data ?? [];
  busy.current = found.length > 0 || runs.length > 0;
  const ids = runs.map((run) => `${run.dag_id} ${run.dag_run_id}`).sort().join("\n");
  const before = useRef(ids);
  useEffect(() => {
    const now = new Set(ids.split("\n"));
    if (before.current.split("\n").some((id) => id && !now.has(id))) onEnded();
    before.current = ids;
  }, [ids]);
  const restoring = useMemo(() => {
    const partitions = found.filter((restore) => restore.silent_s < SILENT_S).flatMap((restore) => restore.partitions);
    return new Map(partitions.map((each) => [label(each), each]));
  }, [restores.data]);
  return { restores: found, runs, restoring, error: restores.error, reload: () => (restores.reload(), active.reload()) };
}

export function Running({ restores, runs }) {
  const waiting = runs.filter((run) => run.dag_id === "restore" && !restores.some((restore) => isOf(restore, run)));
  const others = runs.filter((run) => run.dag_id !== "restore");
  if (restores.length + runs.length === 0) return null;
  return h(
    "section",
    { className: "ss-running", "aria-label": "At work" },
    restores.map((restore) => h(Restoring, { key: restore.run, restore, run: runs.find((run) => isOf(restore, run)) })),
    waiting.map((run) =>
      h("div", { key: run.dag_run_id, className: "ss-restore" }, h(RunLink, { run }, "restore"), run.state === "queued" ? " waits for its turn" : " is starting, waits for an approval, or is ending"),
    ),
    others.length > 0 && h("div", { className: "ss-muted" }, "Also at work: ", others.map((run, index) => [index > 0 && ", ", h(RunLink, { key: run.dag_run_id, run }, run.dag_id)])),
  );
}

/** How far one store partition is: bytes while its snapshot is fetched, then offsets. */
function far(each) {
  if (each.phase === "fetching" && each.snapshot_bytes) return `, ${size(each.fetched_bytes)} of ${size(each.snapshot_bytes)}`;
  return each.total ? `, ${offsets(each)}` : "";
}

const offsets = (each) => `${number(each.done)} of ${number(each.total)} offsets`;
const rate = (each) => (each.records_per_s ? `, ${number(each.records_per_s)} records/s` : "");

function Restoring({ restore, run }) {
  const silent = restore.silent_s >= SILENT_S;
  const left = restore.seconds_left === null ? "" : `, about ${duration(Math.max(restore.seconds_left, 1))} of reading left`;
  return h(
    "div",
    { className: "ss-restore", "data-run": restore.run },
    h("strong", null, run ? h(RunLink, { run }, "restore") : "restore"),
    ` ${restore.ended} of ${restore.partitions_seen} store partitions done, `,
    h("span", { className: "ss-offsets" }, offsets(restore)),
    `${rate(restore)}${left}`,
    h(Bar, { done: restore.done, total: restore.total, label: "offsets read" }),
    silent && h("p", { className: "ss-text-warn" }, `It has said nothing for ${duration(restore.silent_s)}. If no run of the DAG restore is at work, it was ended from outside: start it again, it goes on where it was.`),
    h(
      "ul",
      null,
      restore.partitions.slice(0, 8).map((each) =>
        h("li", { key: label(each) }, `${label(each)}: ${each.phase}${far(each)}${rate(each)}`),
      ),
      restore.partitions.length > 8 && h("li", null, `and ${restore.partitions.length - 8} more`),
    ),
  );
}
