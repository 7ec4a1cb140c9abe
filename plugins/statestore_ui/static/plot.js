// Lag and findings of past verifications, as a small plot: a line above, a bar for each run with findings below.

import { h, number } from "./parts.js";

const WIDTH = 400;
const LAG = { top: 24, height: 80 };
const FOUND = { top: 136, height: 34 };
const LEFT = 6;

export function Plot({ points }) {
  if (points.length === 0) return h("p", { className: "ss-muted" }, "There are no verifications yet. Each run of the DAG verify appears here.");
  const times = points.map((point) => point.started_ms);
  const [begin, end] = [times[0], times[times.length - 1]];
  const x = (ms) => LEFT + (end > begin ? ((ms - begin) / (end - begin)) * (WIDTH - 2 * LEFT) : (WIDTH - 2 * LEFT) / 2);
  const most = Math.max(...points.map((point) => point.lag), 1);
  const found = points.map((point) => Object.values(point.findings).reduce((sum, count) => sum + count, 0));
  const mostFound = Math.max(...found, 1);
  const y = (lag) => LAG.top + LAG.height * (1 - lag / most);
  const day = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
  return h(
    "svg",
    { className: "ss-plot", viewBox: `0 0 ${WIDTH} 190`, role: "img", "aria-label": `Lag and findings of ${points.length} verifications` },
    h("text", { x: LEFT, y: 12 }, `lag, up to ${number(most === 1 && points.every((point) => point.lag === 0) ? 0 : most)} offsets`),
    h("line", { x1: LEFT, x2: WIDTH - LEFT, y1: LAG.top + LAG.height, y2: LAG.top + LAG.height }),
    h("polyline", { points: points.map((point) => `${x(point.started_ms)},${y(point.lag)}`).join(" ") }),
    points.map((point, index) =>
      h(
        "g",
        { key: `${point.run_id}${index}` },
        h("title", null, `${day(point.started_ms)}: lag ${number(point.lag)}, ${findings(point)}`),
        h("circle", { cx: x(point.started_ms), cy: y(point.lag), r: points.length > 100 ? 1 : 2.2 }),
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

const findings = (point) =>
  Object.entries(point.findings).map(([status, count]) => `${count} ${status}`).join(", ") || `${point.partitions} healthy`;
