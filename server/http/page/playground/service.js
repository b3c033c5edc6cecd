// How the service is doing, from its own metrics, while the page is seen.

import { metrics } from "./api.js";
import { make } from "./results.js";

const EVERY_MS = 2000;
const KEPT_S = 300;

// name{labels} value -> the sums over all labels, and of histograms the sums of every bucket.
function read(page) {
  const found = { buckets: new Map() };
  for (const line of page.split("\n")) {
    const match = /^([a-z_:]+)(?:\{([^}]*)\})? (\S+)/i.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    if (name === "dragoman_rpc_duration_seconds_bucket") {
      if (!/code="OK"/.test(labels) || !/Translat/.test(labels)) continue;
      const limit = parseFloat(/le="([^"]+)"/.exec(labels)[1].replace("+Inf", "Infinity"));
      found.buckets.set(limit, (found.buckets.get(limit) ?? 0) + parseFloat(value));
    } else found[name] = (found[name] ?? 0) + parseFloat(value);
  }
  return found;
}

// By straight lines inside of a bucket, as Prometheus has it.
function quantile(before, now, share) {
  const counts = [...now.buckets].map(([limit, count]) => [limit, count - (before.buckets.get(limit) ?? 0)]);
  counts.sort(([a], [b]) => a - b);
  const all = counts.at(-1)?.[1] ?? 0;
  if (!all) return null;
  let [low, below] = [0, 0];
  for (const [limit, count] of counts) {
    if (count >= share * all) return limit === Infinity ? low : low + ((limit - low) * (share * all - below)) / (count - below);
    [low, below] = [limit, count];
  }
  return null;
}

const ms = (seconds) => (seconds === null ? "no calls" : `${(1000 * seconds).toFixed(1)} ms`);

export function watchService(list, chart, token) {
  const kept = [];
  const tick = async () => {
    if (document.hidden) return;
    try {
      const now = { at: performance.now() / 1000, ...read(await metrics(token())) };
      if (now.process_start_time_seconds !== kept.at(-1)?.process_start_time_seconds) kept.length = 0; // it counts anew
      kept.push(now);
    } catch (error) {
      list.replaceChildren(make("div", {}, make("dt", { text: "metrics" }), make("dd", { text: error.message })));
      return;
    }
    while (kept.at(-1).at - kept[0].at > KEPT_S) kept.shift();
    show(list, chart, kept);
  };
  tick();
  setInterval(tick, EVERY_MS);
  document.addEventListener("visibilitychange", tick);
}

function show(list, chart, kept) {
  const [first, last] = [kept[0], kept.at(-1)];
  const of = (name) => last[name] ?? 0;
  const rates = kept.slice(1).map((one, i) => {
    const rows = (one.dragoman_target_tokens_total ?? 0) - (kept[i].dragoman_target_tokens_total ?? 0);
    return rows / (one.at - kept[i].at);
  });
  const figures = {
    "p50, five minutes": ms(quantile(first, last, 0.5)),
    "p99, five minutes": ms(quantile(first, last, 0.99)),
    "tokens a second": (rates.at(-1) ?? 0).toFixed(0),
    "live rows": `${of("dragoman_rows_live")} of ${of("dragoman_rows_capacity")}`,
    "waiting": String(of("dragoman_requests_waiting")),
  };
  list.replaceChildren(
    ...Object.entries(figures).map(([name, text]) => make("div", {}, make("dt", { text: name }), make("dd", { text }))),
  );
  if (rates.length < 2) return;
  const most = Math.max(1, ...rates);
  const points = rates.map((rate, i) => `${(100 * i) / (rates.length - 1)},${(40 - (38 * rate) / most).toFixed(2)}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const told = `Tokens a second: ${rates.at(-1).toFixed(0)} now, at most ${most.toFixed(0)}`;
  svg.setAttribute("aria-label", told);
  const line = document.createElementNS(svg.namespaceURI, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  chart.replaceChildren(svg, make("figcaption", { className: "note", text: `${told} in the last five minutes` }));
}
