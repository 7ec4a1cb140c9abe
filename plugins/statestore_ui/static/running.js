// What is in progress now: restores, snapshots and runs of process with how far they are, and runs of the other DAGs.

import { activeRuns, dagId, isOf, jobOf, progress, usePolled } from "./data.js";
import { Bar, Notice, RunLink, duration, h, many, number, size } from "./parts.js";
import { StartButton } from "./start-button.js";
import { label } from "./table.js";

const { useEffect, useMemo, useRef } = globalThis.React;

const SILENT_S = 120;
const JOBS = ["restore", "snapshot", "process"];
const PIECES = 8;

/** Work and runs of now, polled more often while there are some; `onEnded` is called when a run has ended. */
export function useRunning(onEnded) {
  const busy = useRef(false);
  const polled = usePolled(progress, busy.current ? 2_000 : 5_000);
  const active = usePolled(activeRuns, busy.current ? 3_000 : 5_000);
  const work = polled.data?.work ?? [];
  const runs = active.data ?? [];
  busy.current = work.length > 0 || runs.length > 0;
  const ids = runs.map((run) => `${run.dag_id} ${run.dag_run_id}`).sort().join("\n");
  const before = useRef(ids);
  useEffect(() => {
    const now = new Set(ids.split("\n"));
    if (before.current.split("\n").some((id) => id && !now.has(id))) onEnded();
    before.current = ids;
  }, [ids]);
  const restoring = useMemo(() => {
    const pieces = work.filter((each) => each.job === "restore" && each.silent_s < SILENT_S).flatMap((each) => each.pieces);
    return new Map(pieces.map((each) => [label(each), each]));
  }, [polled.data]);
  return { work, runs, known: active.data !== null, restoring, reload: () => (polled.reload(), active.reload()) };
}

/** Work that was probably killed: it has made no progress for a while, and Airflow has no run for it. */
export function Stopped({ work, runs, known, onStart }) {
  const stopped = known ? work.filter((each) => each.silent_s >= SILENT_S && !runs.some((run) => isOf(each, run))) : [];
  return stopped.map((each) => {
    const application = each.pieces[0]?.application;
    return h(
      Notice,
      { key: `${each.job} ${each.run}`, level: "bad", title: `${each.job} of ${application ?? "an unknown application"} stopped.` },
      `No progress for ${duration(each.silent_s)}, and Airflow has no run of it. If no command does this work either, it was killed. Start it again: it continues where it stopped. `,
      application && FORMS.includes(each.job) && h(StartButton, { row: { application, store: "", task: "-" }, name: each.job, small: true, title: `Start ${each.job} of ${application} again`, onStart }),
    );
  });
}

const FORMS = ["restore", "process"];

export function Running({ work, runs }) {
  const told = (run) => work.some((each) => isOf(each, run));
  const waiting = runs.filter((run) => JOBS.includes(jobOf(run)) && !told(run));
  const others = runs.filter((run) => !JOBS.includes(jobOf(run)));
  if (work.length + runs.length === 0) return null;
  return h(
    "section",
    { className: "ss-running", "aria-label": "In progress" },
    work.map((each) => h(Work, { key: `${each.job} ${each.run}`, work: each, run: runs.find((run) => isOf(each, run)) })),
    waiting.map((run) =>
      h("div", { key: `${run.dag_id} ${run.dag_run_id}`, className: "ss-work" }, h(RunLink, { run }, run.dag_id), ` ${doesNow(run)}`),
    ),
    others.length > 0 && h("div", { className: "ss-muted" }, "Also running: ", others.map((run, index) => [index > 0 && ", ", h(RunLink, { key: run.dag_run_id, run }, run.dag_id)])),
  );
}

/** What each step of a run does, by its Airflow task (dags/statestore_dags/steps.py). */
const STEPS = {
  plan: "is making its plan",
  spark: "is starting Spark",
  rows: "is collecting its results",
  check: "is showing its results, one Airflow task for each",
};

/** What a run does now, in one line. */
function doesNow(run) {
  if (run.state === "queued") return "is queued. It starts when no other run of this DAG is in progress; if the DAG is paused, turn it on";
  const { task, state } = run.step ?? {};
  if (!task) return "is between two steps";
  if (task === "approve") return state === "running" ? "is asking for approval" : "waits for a person: open the run, and approve or reject it";
  if (state === "up_for_retry") return `tries its step ${task} again in a moment. The log of the last attempt says why it failed`;
  if (state === "queued" || state === "scheduled") return `waits for a free slot for its step ${task}`;
  return STEPS[task] ?? `is at its step ${task}`;
}

/** How far one store partition is: bytes while its snapshot is fetched, then offsets. */
function far(each) {
  if (each.phase === "fetching" && each.snapshot_bytes) return `, ${size(each.fetched_bytes)} of ${size(each.snapshot_bytes)}`;
  return each.total ? `, ${offsets(each)}` : "";
}

const offsets = (each) => `${number(each.done)} of ${number(each.total)} offsets`;
const rate = (each) => (each.records_per_s ? `, ${number(each.records_per_s)} records/s` : "");
const name = (each) => (each.store === undefined ? `${each.application}/${each.task}` : label(each));

function Work({ work, run }) {
  const silent = work.silent_s >= SILENT_S;
  const left = work.seconds_left === null ? "" : `, about ${duration(Math.max(work.seconds_left, 1))} of reading left`;
  const letters = work.dead_letters ? `, ${many(work.dead_letters, "dead letter")}` : "";
  return h(
    "div",
    { className: "ss-work", "data-run": work.run, "data-job": work.job },
    h("strong", null, run ? h(RunLink, { run }, run.dag_id) : work.job),
    ` ${number(work.ended)} of ${number(work.seen)} ${work.job === "process" ? "tasks" : "store partitions"} done, `,
    h("span", { className: "ss-offsets" }, offsets(work)),
    `${rate(work)}${left}${letters}`,
    h(Bar, { done: work.done, total: work.total, label: "offsets read" }),
    silent && h("p", { className: "ss-text-warn" }, `No progress for ${duration(work.silent_s)}. If no run of the DAG ${dagId(work.job, work.pieces[0]?.application)} is in progress, this run was killed. Start the DAG again: it resumes where this run stopped.`),
    h(
      "ul",
      null,
      work.pieces.slice(0, PIECES).map((each) => h("li", { key: name(each) }, `${name(each)}: ${each.phase}${far(each)}${rate(each)}`)),
      work.pieces.length > PIECES && h("li", null, `and ${number(work.pieces.length - PIECES)} more`),
    ),
  );
}
