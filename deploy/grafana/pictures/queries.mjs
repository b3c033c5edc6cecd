// What Grafana's server does for a panel: fills in variables, and asks Prometheus.

const SCRAPE_S = 5;
const POINTS = 180;

/** The time range that ends now, and its step; all in seconds. */
export function lastMinutes(minutes) {
  const end = Math.floor(Date.now() / 1000);
  const step = Math.max(1, Math.round((minutes * 60) / POINTS));
  return { start: end - minutes * 60, end, step };
}

/** The panel with the answers to its queries: {legend, labels, values: [[seconds, value]]} for each series. */
export async function answered(panel, prometheus, range) {
  const answers = await Promise.all((panel.targets ?? []).map((target) => ask(target, prometheus, range)));
  return { ...panel, series: answers.flat() };
}

async function ask(target, prometheus, { start, end, step }) {
  const window = `${Math.max(4 * SCRAPE_S, step + SCRAPE_S)}s`;
  const query = target.expr.replaceAll('$__rate_interval', window).replaceAll(/\$(instance|model|replica)\b/g, '.*');
  const form = target.instant ? { query, time: end } : { query, start, end, step };
  const url = `${prometheus}/api/v1/${target.instant ? 'query' : 'query_range'}?${new URLSearchParams(form)}`;
  const { status, data, error } = await (await fetch(url)).json();
  if (status !== 'success') throw new Error(`${query}: ${error}`);
  if (!data.result.length) throw new Error(`${query}: no data; is there traffic, and are the rules loaded?`);
  return data.result.map(({ metric, values, value }) => ({
    legend: target.legendFormat.replaceAll(/{{(\w+)}}/g, (_, label) => metric[label] ?? ''),
    labels: metric,
    values: (values ?? [value]).map(([time, text]) => [Number(time), Number(text)]),
  }));
}
