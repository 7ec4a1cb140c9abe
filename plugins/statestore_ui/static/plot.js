// Past runs as a small plot: a line above, such as the lag, and below a bar for each run with findings.

import { h, number, took } from "./parts.js";

const WIDTH = 400;
const LAG = { top: 24, height: 80 };
const FOUND = { top: 136, height: 34 };
const LEFT = 6;

/** What a plot shows of each run: `value` is the line, `bad` are its findings. */
export const VERIFICATIONS = {
  none: "There are no verifications yet. Each run of the DAG verify appears here.",
  label: (count) => `Lag and findings of ${count} verifications`,
  title: (most) => `lag, up to ${number(most)} offsets`,
  value: (point) => point.lag,
  bad: (point) => point.findings,
  said: (point) => `lag ${number(point.lag)}, ${counts(point.findings) || `${point.partitions} healthy`}`,
};
export const DRILLS = {
  none: "There are no drills yet. Each run of the DAG drill appears here.",
  label: (count) => `Restores of ${count} drills`,
  title: (most) => `slowest restore, up to ${took(most)}`,
  value: (point) => point.seconds,
  bad: (point) => Object.fromEntries(Object.entries(point.verdicts).filter(([verdict]) => verdict !== "proven")),
  said: (point) => `slowest restore ${took(point.seconds)}, ${counts(point.verdicts)}`,
};

export function Plot({ points, of = VERIFICATIONS }) {
  if (points.length === 0) return h("p", { className: "ss-muted" }, of.none);
  const times = points.map((point) => point.started_ms);
  const [begin, end] = [times[0], times[times.length - 1]];
  const x = (ms) => LEFT + (end > begin ? ((ms - begin) / (end - begin)) * (WIDTH - 2 * LEFT) : (WIDTH - 2 * LEFT) / 2);
  const values = points.map(of.value);
  const highest = Math.max(...values);
  const most = Math.max(highest, 1);
  const found = points.map((point) => Object.values(of.bad(point)).reduce((sum, count) => sum + count, 0));
  const mostFound = Math.max(...found, 1);
  const y = (lag) => LAG.top + LAG.height * (1 - lag / most);
  const day = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
  return h(
    "svg",
    { className: "ss-plot", viewBox: `0 0 ${WIDTH} 190`, role: "img", "aria-label": of.label(points.length) },
    h("text", { x: LEFT, y: 12 }, of.title(highest)),
    h("line", { x1: LEFT, x2: WIDTH - LEFT, y1: LAG.top + LAG.height, y2: LAG.top + LAG.height }),
    h("polyline", { points: points.map((point, index) => `${x(point.started_ms)},${y(values[index])}`).join(" ") }),
    points.map((point, index) =>
      h(
        "g",
        { key: `${point.run_id}${index}` },
        h("title", null, `${day(point.started_ms)}: ${of.said(point)}`),
        h("circle", { cx: x(point.started_ms), cy: y(values[index]), r: points.length > 100 ? 1 : 2.2 }),
        found[index] > 0 &&
          h("rect", {
            x: x(point.started_ms) - 2,
            y: FOUND.top + FOUND.height * (1 - found[index] / mostFound),
            width: 4,
            height: (FOUND.height * found[index]) / mostFound,
          }),
      ),
    ),
    h("text", { x: LEFT, y: FOUND.top - 10 }, found.some(Boolean) ? `findings, up to ${number(mostFound)}` : "no findings"),
    h("line", { x1: LEFT, x2: WIDTH - LEFT, y1: FOUND.top + FOUND.height, y2: FOUND.top + FOUND.height }),
    h("text", { x: LEFT, y: 186 }, day(begin)),
    end > begin && h("text", { x: WIDTH - LEFT, y: 186, textAnchor: "end" }, day(end)),
  );
}

const counts = (found) => Object.entries(found).map(([name, count]) => `${count} ${name}`).join(", ");
