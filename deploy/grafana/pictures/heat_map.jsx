// A heat map of buckets. Grafana's own is a plugin of its server, in no package: this is ours, in Grafana's colors and formats.
import React from 'react';
import { getValueFormat } from '@grafana/data';

const LEFT = 56;
const TOP = 8;
const BOTTOM = 22;
const SPECTRAL = ['#5e4fa2', '#3288bd', '#66c2a5', '#abdda4', '#e6f598', '#fee08b', '#fdae61', '#f46d43', '#d53e4f'];
const TICKS = 6;

/** Rows from the lowest bucket up, each with its upper edge and its own counts: cumulative ones less those of the bucket below. */
function rows(series) {
  const sorted = series
    .map(({ labels, values }) => ({ edge: Number(labels.le.replace('+Inf', 'Infinity')), counts: new Map(values) }))
    .sort((a, b) => a.edge - b.edge);
  const own = sorted.map(({ edge, counts }, index) => ({
    edge,
    counts: new Map([...counts].map(([time, count]) => [time, count - (sorted[index - 1]?.counts.get(time) ?? 0)])),
  }));
  const filled = own.map(({ counts }) => [...counts.values()].some((count) => count > 1e-9));
  return own.slice(Math.max(0, filled.indexOf(true) - 1), filled.lastIndexOf(true) + 2);
}

export function HeatMap({ panel, width, height, theme }) {
  const { start, end, step } = window.range;
  const buckets = rows(panel.series);
  const most = Math.max(...buckets.flatMap(({ counts }) => [...counts.values()]));
  const rowHeight = (height - TOP - BOTTOM) / buckets.length;
  const x = (time) => LEFT + ((time - start) / (end - start)) * (width - LEFT);
  const y = (index) => height - BOTTOM - (index + 1) * rowHeight;
  const format = getValueFormat(panel.options.yAxis?.unit);
  const written = (edge) => {
    if (edge === Infinity) return '+Inf';
    const { text, suffix = '' } = format(edge);
    return text + suffix;
  };
  const every = Math.ceil(12 / rowHeight);
  const label = { fill: theme.colors.text.secondary, fontSize: 11, fontFamily: theme.typography.fontFamily };
  return (
    <svg width={width} height={height}>
      {buckets.flatMap(({ counts }, index) =>
        [...counts].filter(([time, count]) => count > 1e-9 && time > start).map(([time, count]) => (
          <rect key={`${index} ${time}`} x={x(time - step)} y={y(index)} width={x(step) - x(0)} height={Math.max(1, rowHeight - 1)}
            fill={SPECTRAL[Math.min(SPECTRAL.length - 1, Math.floor((count / most) ** 0.5 * SPECTRAL.length))]} />
        )),
      )}
      {buckets.map(({ edge }, index) => index % every === 0 && (
        <text key={edge} x={LEFT - 6} y={y(index) + 4} textAnchor="end" {...label}>{written(edge)}</text>
      ))}
      {Array.from({ length: TICKS }, (_, index) => start + ((index + 0.5) * (end - start)) / TICKS).map((time) => (
        <text key={time} x={x(time)} y={height - 5} textAnchor="middle" {...label}>
          {new Date(time * 1000).toISOString().slice(11, 16)}
        </text>
      ))}
    </svg>
  );
}
