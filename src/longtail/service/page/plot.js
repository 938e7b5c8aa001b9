// The reliability plot: how often labels were right, over the probability that the model gave them.

import { drawn } from "./dom.js";
import { formatPercent, say } from "./texts.js";

const SIZE = 300; // of the square in which points are
const LEFT = 52,
  TOP = 10,
  BOTTOM = 46,
  RIGHT = 24;
const TICKS = [0, 0.25, 0.5, 0.75, 1];

const x = (share) => LEFT + SIZE * share;
const y = (share) => TOP + SIZE * (1 - share);

/** @param bins Each with `score` (mean probability), `right` (share of right labels) and `n` (number of labels). */
export function plotCalibration({ bins, ece }) {
  const used = bins.filter((bin) => bin.n > 0);
  const label = say("plot.about", { error: formatPercent(ece) });
  return drawn(
    "svg",
    { viewBox: `0 0 ${LEFT + SIZE + RIGHT} ${TOP + SIZE + BOTTOM}`, role: "img", "aria-label": label, class: "plot" },
    ...TICKS.flatMap(drawTick),
    drawn("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    drawn("polyline", { class: "line", points: used.map((bin) => `${x(bin.score)},${y(bin.right)}`).join(" ") }),
    ...drawPoints(used),
    drawn("text", { class: "title", x: x(0.5), y: TOP + SIZE + 40, "text-anchor": "middle" }, say("plot.x")),
    drawn(
      "text",
      { class: "title", transform: `translate(12 ${y(0.5)}) rotate(-90)`, "text-anchor": "middle" },
      say("plot.y"),
    ),
  );
}

function drawTick(share) {
  return [
    drawn("line", { class: "grid", x1: x(share), y1: y(0), x2: x(share), y2: y(1) }),
    drawn("line", { class: "grid", x1: x(0), y1: y(share), x2: x(1), y2: y(share) }),
    drawn("text", { class: "tick", x: x(share), y: y(0) + 18, "text-anchor": "middle" }, formatPercent(share)),
    drawn("text", { class: "tick", x: x(0) - 8, y: y(share) + 4, "text-anchor": "end" }, formatPercent(share)),
  ];
}

/** Points whose area grows with the number of labels. */
function drawPoints(bins) {
  const most = Math.max(...bins.map((bin) => bin.n));
  return bins.map((bin) =>
    drawn(
      "circle",
      { class: "point", cx: x(bin.score), cy: y(bin.right), r: 3 + 7 * Math.sqrt(bin.n / most) },
      drawn("title", {}, say("plot.bin", { score: formatPercent(bin.score), right: formatPercent(bin.right), n: bin.n })),
    ),
  );
}
