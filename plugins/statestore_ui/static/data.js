// What the page asks for, when, and what it says if there is no answer.

const { useCallback, useEffect, useRef, useState } = globalThis.React;

export const url = (path) => new URL(path, document.baseURI).href;

const PATIENCE_MS = 60_000;

/** Ask for JSON. An error says what to do. */
async function ask(path, options = {}) {
  let answer;
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    answer = await fetch(url(path), { credentials: "same-origin", cache: "no-store", signal, ...options });
  } catch {
    throw new Error("The API server does not answer.");
  }
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) throw new Error("You are no longer logged in. Reload this page to log in again.");
  if (answer.status === 403) throw new Error("You do not have permission to do this. Ask an administrator of this Airflow for it.");
  const said = await answer.json().catch(() => ({}));
  throw new Error(describe(said.detail) || `The API server answered with ${answer.status}. Its log says why.`);
}

/** What Airflow's API says went wrong: a sentence, or a list of complaints about fields. */
function describe(detail) {
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((each) => each.msg ?? JSON.stringify(each)).join("; ");
  return detail ? JSON.stringify(detail) : "";
}

export const get = async (path) => (await ask(path)).json();

export const post = async (path, body) =>
  (await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();

/**
 * Keep an answer up to date: ask every `everyMs`, not while the tab is hidden, and at once when it is shown again.
 * An answer with an ETag is only sent again when it has changed.
 */
export function usePolled(load, everyMs) {
  const [state, setState] = useState({ data: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    let timer = null;
    let ended = false;
    let asking = false;
    const look = async () => {
      clearTimeout(timer);
      if (asking || document.hidden) return;
      asking = true;
      try {
        const data = await load();
        if (!ended) setState((before) => (data === before.data && !before.error ? before : { data, error: null }));
      } catch (error) {
        if (!ended) setState((before) => ({ ...before, error: error.message }));
      }
      asking = false;
      if (!ended && !document.hidden) timer = setTimeout(look, everyMs);
    };
    again.current = look;
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [load, everyMs]);
  return { ...state, reload: useCallback(() => again.current(), []) };
}

/** A loader that remembers the ETag of its last answer, and gives the same object while nothing has changed. */
function tagged(path) {
  let tag = null;
  let last = null;
  return async () => {
    const answer = await ask(path, tag ? { headers: { "If-None-Match": tag } } : {});
    if (answer.status !== 304) {
      tag = answer.headers.get("ETag");
      last = await answer.json();
    }
    return last;
  };
}

const askOverview = tagged("statestore/api/overview");
/** What is in front of our DAGs' names, and the environments of applications that have one (statestore/environments.py). */
let naming = { prefix: "", environments: {} };
export const overview = async () => {
  const found = await askOverview();
  naming = found.dags ?? naming;
  return found;
};
/** The id of the DAG that works for an application, or for those without an environment. */
export const dagId = (dag, application) => {
  const environment = naming.environments[application];
  return `${naming.prefix}${environment ? `${environment}.` : ""}${dag}`;
};
const DAGS = ["metastore", "process", "verify", "restore", "validate", "rewrite", "snapshot", "drill", "maintenance"];
/** The job of a DAG. */
export const jobOf = (run) => {
  const id = run.dag_id.startsWith(naming.prefix) ? run.dag_id.slice(naming.prefix.length) : run.dag_id;
  const [first, second] = id.split(".");
  return DAGS.includes(first) || second === undefined ? first : second;
};

/** Store partitions of a question, `limit` of them from `offset` on. Rows name the runs that they are from themselves. */
export async function partitions(question, offset, limit) {
  const found = await get(`statestore/api/partitions?${new URLSearchParams({ ...question, offset, limit })}`);
  for (const row of found.rows) {
    for (const job of ["verify", "restore", "validate", "process", "drill"]) if (row[job]) row[job].run = found.runs[row[job].run];
  }
  return found;
}

export const progress = () => get("statestore/api/progress");
export const history = (application, store) =>
  get(`statestore/api/history?${new URLSearchParams({ application, store })}`);

/** How many store partitions a restore selects, and how many of them it would restore. */
export function restorable(application, stores, partitions, force) {
  const question = new URLSearchParams({ application, force });
  stores.forEach((store) => question.append("store", store));
  partitions.forEach((partition) => question.append("partition", partition));
  return get(`statestore/api/restorable?${question}`);
}

export const drills = (application, store) => get(`statestore/api/drills?${new URLSearchParams({ application, store })}`);

let known = [];

/** Our DAGs. Asked for again while there are none: on a new installation they may not have been parsed yet. */
export async function dagIds() {
  if (known.length === 0) {
    const found = [];
    for (let more = true; more; ) {
      const page = await get(`api/v2/dags?limit=100&offset=${found.length}&tags=state+stores`);
      found.push(...page.dags.map((dag) => dag.dag_id));
      more = page.dags.length > 0 && found.length < page.total_entries;
    }
    known = found;
  }
  return known;
}

/** Runs of our DAGs that are running or queued, as Airflow itself says. */
export async function activeRuns() {
  const dags = await dagIds();
  if (dags.length === 0) return [];
  const states = ["running", "queued"];
  const { dag_runs: runs } = await post("api/v2/dags/~/dagRuns/list", { dag_ids: dags, states, page_limit: 100 });
  const named = runs.filter((run) => run.state === "running").slice(0, MOST_STEPS);
  await Promise.all(named.map(async (run) => (run.step = await stepOf(run).catch(() => null))));
  return runs;
}

const MOST_STEPS = 8;
/** States of Airflow's tasks that say what a run does now, the most telling first. */
const TELLING = ["awaiting_input", "deferred", "running", "restarting", "up_for_retry", "up_for_reschedule", "queued", "scheduled"];

/** The step that a run is at: the Airflow task that tells most, with its state; null before the first one. */
async function stepOf(run) {
  const path = `api/v2/dags/${encodeURIComponent(run.dag_id)}/dagRuns/${encodeURIComponent(run.dag_run_id)}/taskInstances`;
  const states = TELLING.map((state) => `state=${state}`).join("&");
  const { task_instances: tasks } = await get(`${path}?limit=100&${states}`);
  const [first] = tasks.sort((one, other) => TELLING.indexOf(one.state) - TELLING.indexOf(other.state));
  return first ? { task: first.task_id, state: first.state } : null;
}

/** The name of each report that a run writes begins with this (dags/statestore_dags/parts.py), then has a digest. */
const reportName = (runId) => runId.replace(/[^A-Za-z0-9_.-]/g, "_").slice(0, 120);
export const isOf = (work, run) => jobOf(run) === work.job && work.run.startsWith(`${reportName(run.dag_run_id)}-`);
