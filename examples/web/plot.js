// plot.js -- lines and dots in an SVG, with axes. Colours are the page's.
const NS = 'http://www.w3.org/2000/svg';
const margin = { left: 52, right: 12, top: 12, bottom: 30 };

function element(name, attributes, text) {
  const e = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

/** Round numbers that cover [low, high], about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) list.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return list;
}

function rangeOf(values) {
  const finite = values.filter(Number.isFinite);
  let [low, high] = [Math.min(...finite), Math.max(...finite)];
  if (finite.length === 0) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - 1, high + 1];
  const room = 0.05 * (high - low);
  return [low - room, high + room];
}

const label = (v) => (Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-2) ? v.toExponential(0) : `${+v.toPrecision(3)}`);

/** series: [{name, points: [[x, y], ..], dots}]. `what` is read to those who do not see it. */
export function plot(svg, series, what) {
  const { left, right, top, bottom } = margin;
  const width = Math.max(svg.clientWidth || 640, 280); // its own size, so that letters are as large as elsewhere
  const height = Math.max(Math.round(width / 2), 200);
  const all = series.flatMap((s) => s.points);
  const [x0, x1] = all.length ? [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]), all[0][0] + 1e-9)] : [0, 1];
  const [y0, y1] = rangeOf(all.map((p) => p[1]));
  const x = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const y = (v) => height - bottom - ((v - y0) / (y1 - y0)) * (height - top - bottom);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', what);
  svg.replaceChildren();
  for (const v of ticks(x0, x1, 8)) {
    svg.append(element('line', { class: v === 0 ? 'zero' : 'grid', x1: x(v), x2: x(v), y1: top, y2: height - bottom }));
    svg.append(element('text', { x: x(v), y: height - 10, 'text-anchor': 'middle' }, label(v)));
  }
  for (const v of ticks(y0, y1, 5)) {
    svg.append(element('line', { class: v === 0 ? 'zero' : 'grid', x1: left, x2: width - right, y1: y(v), y2: y(v) }));
    svg.append(element('text', { x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, label(v)));
  }
  series.forEach((s, i) => {
    const points = s.points.filter((p) => Number.isFinite(p[1]));
    if (s.dots) for (const p of points) svg.append(element('circle', { class: `dot s${i}`, cx: x(p[0]), cy: y(p[1]), r: 3 }));
    else svg.append(element('polyline', { class: `s${i}`, points: points.map((p) => `${x(p[0])},${y(p[1])}`).join(' ') }));
  });
}
