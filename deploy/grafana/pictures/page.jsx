// A dashboard, drawn with Grafana's own components from answers that are already there (window.dashboard, window.range).
import 'uplot/dist/uPlot.min.css';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { FieldType, ThemeContext, createTheme, dateTime, getDisplayProcessor, getMinMaxAndDelta, toDataFrame } from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';
import { HeatMap } from './heat_map.jsx';

const COLUMN = 52;
const ROW = 34;
const GAP = 8;
const theme = createTheme({ colors: { mode: 'dark' } });
const TIME_SERIES = { drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, pointSize: 4, showPoints: 'never', axisPlacement: 'auto' };

/** A field as Grafana makes it from a panel's options and the overrides that name its legend. */
function field(panel, { legend, labels, values }) {
  const { defaults, overrides } = panel.fieldConfig;
  const config = { ...defaults, custom: { ...TIME_SERIES, ...defaults.custom }, displayNameFromDS: legend };
  for (const { matcher, properties } of overrides) {
    if (matcher.id === 'byName' && matcher.options === legend) for (const { id, value } of properties) config[id] = value;
  }
  const made = { name: 'Value', type: FieldType.number, labels, config, values: values.map(([, value]) => value) };
  made.display = getDisplayProcessor({ field: made, theme });
  return made;
}

function frames(panel) {
  return panel.series.map((series, index) => {
    const time = { name: 'Time', type: FieldType.time, config: {}, values: series.values.map(([seconds]) => seconds * 1000) };
    const frame = toDataFrame({ refId: `${index}`, fields: [time, field(panel, series)] });
    frame.fields[1].state = { seriesIndex: index };
    return frame;
  });
}

function Lines({ panel, width, height }) {
  const { start, end } = window.range;
  const [from, to] = [dateTime(start * 1000), dateTime(end * 1000)];
  return (
    <TimeSeries frames={frames(panel)} width={width} height={height} timeZone="utc" structureRev={1} options={{}}
      timeRange={{ from, to, raw: { from, to } }} legend={{ calcs: [], ...panel.options.legend }} />
  );
}

function Number({ panel, width, height }) {
  const [series] = panel.series;
  const y = field(panel, series);
  const last = y.display(series.values.at(-1)[1]);
  y.config.color = { mode: 'fixed', fixedColor: last.color };
  y.state = { range: getMinMaxAndDelta(y) };
  return (
    <BigValue theme={theme} width={width} height={height} value={last} colorMode={panel.options.colorMode}
      graphMode={panel.options.graphMode} sparkline={{ y }} />
  );
}

function Facts({ panel, width, height }) {
  const hidden = panel.transformations[0].options.excludeByName;
  const names = Object.keys(panel.series[0].labels).filter((name) => !hidden[name]);
  const data = toDataFrame({ fields: names.map((name) => ({
    name, type: FieldType.string, config: { custom: {} }, values: panel.series.map(({ labels }) => labels[name]),
  })) });
  for (const each of data.fields) each.display = getDisplayProcessor({ field: each, theme });
  return <Table data={data} width={width} height={height} />;
}

const KINDS = { stat: Number, timeseries: Lines, table: Facts, heatmap: HeatMap };

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const place = { position: 'absolute', left: x * COLUMN, top: y * ROW, width: w * COLUMN - GAP, height: h * ROW - GAP };
  if (panel.type === 'row') return <h4 style={{ ...place, paddingTop: 6 }}>{panel.title}</h4>;
  const Kind = KINDS[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={panel.title} width={place.width} height={place.height}>
        {(width, height) => <Kind panel={panel} width={width} height={height} theme={theme} />}
      </PanelChrome>
    </div>
  );
}

function Dashboard({ title, panels }) {
  const { y, h } = panels.at(-1).gridPos;
  return (
    <main style={{ position: 'relative', margin: GAP, width: 24 * COLUMN, height: (y + h) * ROW + 40 }}>
      <h3>{title}</h3>
      <div style={{ position: 'absolute', top: 40 }}>{panels.map((panel, index) => <Panel key={index} panel={panel} />)}</div>
    </main>
  );
}

createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard {...window.dashboard} /></ThemeContext.Provider>,
);
