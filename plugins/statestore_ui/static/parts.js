// Small things that page, panel and card are made of.

const { Component, createElement, useEffect, useState } = globalThis.React;
const { Link } = globalThis.ReactRouterDOM;

export const h = createElement;

const numbers = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : numbers.format(Math.round(value)));

/** So many of a thing: "1 store partition", "2 store partitions". */
export const many = (value, thing) => `${number(value)} ${thing}${value === 1 ? "" : "s"}`;

const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

/** Bytes as people say them: 1,536 is "1.5 KiB". */
export function size(bytes) {
  const [unit, name] = SIZES.find(([step]) => bytes >= step) ?? [1, "bytes"];
  return `${Number((bytes / unit).toFixed(unit === 1 ? 0 : 1))} ${name}`;
}

const STEPS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Seconds as people say them: 90 is "1 min", 7,200 is "2 h". */
export function duration(seconds) {
  const [size, unit] = STEPS.find(([step]) => seconds >= step) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** How long something took: 1.25 is "1.3 s". */
export const took = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${seconds.toFixed(1)} s` : duration(seconds));

/** How many store partitions of an application are proven restorable, and which objectives are broken. */
export function Drills({ drills }) {
  const { proven = 0, ...broken } = drills.standings;
  const all = Object.values(drills.standings).reduce((sum, count) => sum + count, 0);
  const others = Object.entries(broken).map(([standing, count]) => `, ${number(count)} ${standing}`).join("");
  const slowest = drills.slowest_seconds === null ? "" : `; slowest restore ${took(drills.slowest_seconds)}`;
  return h("small", { className: proven === all ? "ss-text-good" : "ss-text-warn" }, `${number(proven)} of ${number(all)} proven restorable${others}${slowest}`);
}

/** How long ago something was; the exact time is in its tooltip. */
export function Ago({ ms, now }) {
  const time = new Date(ms);
  if (!ms || Number.isNaN(time.valueOf())) return "–";
  const seconds = (now - ms) / 1000;
  const words = seconds < 10 ? "just now" : `${duration(seconds)} ago`;
  return h("time", { dateTime: time.toISOString(), title: time.toLocaleString() }, words);
}

/** Since when something is so, as far back as reports go: "2 h"; the exact time is in its tooltip. */
export const Since = ({ ms, now }) =>
  h("time", { dateTime: new Date(ms).toISOString(), title: `at least since ${new Date(ms).toLocaleString()}` }, duration(Math.max((now - ms) / 1000, 0)));

/** The time, which moves on so that "3 min ago" does. */
export function useNow(everyMs = 10_000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** A status: its colour says how bad it is, its word what it is. */
export const Badge = ({ level, word }) => h("span", { className: `ss-badge ss-${level}` }, h("i", { "aria-hidden": true }), word);

export const Bar = ({ done, total, label }) =>
  h("progress", { className: "ss-bar", max: total || 1, value: total ? Math.min(done, total) : undefined, "aria-label": label });

/** A link to a DAG run; plain text if the report was written by a command. */
export function RunLink({ run, children }) {
  if (!run) return "–";
  if (!run.dag_id || !run.dag_run_id) return children;
  return h(Link, { to: runPath(run), title: `Run ${run.dag_run_id} of DAG ${run.dag_id}`, onClick: stop }, children);
}

export const runPath = (run) => `/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`;

/** Do not also choose the row that the link is in. */
export const stop = (event) => event.stopPropagation();

export const Notice = ({ level = "warn", title, children }) =>
  h("div", { className: `ss-notice ss-${level}`, role: level === "bad" ? "alert" : "status" }, h("strong", null, title), " ", children);

/** What a component's own mistake looks like: the rest of Airflow's page stays as it is. */
class Guard extends Component {
  state = { error: null };
  static getDerivedStateFromError = (error) => ({ error });
  render() {
    const { error } = this.state;
    return error
      ? h("div", { className: "ss-root" }, h(Notice, { level: "bad", title: "State stores cannot be shown." }, `${error.message}. Reload the page. If the error persists, see the browser's console for details.`))
      : this.props.children;
  }
}

export const guarded = (component) => (props) => h(Guard, null, h(component, props));
