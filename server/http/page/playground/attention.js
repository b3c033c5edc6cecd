// Heat maps of every layer and head.

import { make, pieces } from "./results.js";

function halves(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => {
    const bits = view.getUint16(2 * i, true);
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    return exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024;
  });
}

function map(weights, first, rows, columns, label) {
  const canvas = make("canvas", { width: columns, height: rows, tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const image = new ImageData(columns, rows);
  const [red, green, blue] = matchMedia("(prefers-color-scheme: dark)").matches ? [255, 179, 143] : [180, 69, 31];
  for (let i = 0; i < rows * columns; i++) image.data.set([red, green, blue, 255 * weights[first + i]], 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
  const enlarge = () => canvas.classList.toggle("large");
  canvas.addEventListener("click", enlarge);
  canvas.addEventListener("keydown", (event) => event.key === "Enter" && enlarge());
  return canvas;
}

export function showAttention(place, name, attention, text, source) {
  const [layers, heads, rows, columns] = attention.shape;
  const weights = halves(attention.weights);
  const [look, seen] = [pieces(text, attention.spans), source];
  const title = make("h3", { text: name });
  const drawn = [];
  for (let layer = 0; layer < layers; layer++) {
    const figures = [];
    for (let head = 0; head < heads; head++) {
      const first = (layer * heads + head) * rows * columns;
      const row = Math.floor(weights.subarray(first, first + rows * columns).reduce(
        (best, value, i, all) => (value > all[best] ? i : best), 0) / columns);
      const label = `${name}, layer ${layer + 1}, head ${head + 1}: ${rows} tokens look at ${columns}`;
      const canvas = map(weights, first, rows, columns, label);
      canvas.title = `${label}; the surest is “${look[row] ?? ""}”`;
      canvas.addEventListener("mousemove", (event) => {
        const [x, y] = [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight];
        const [t, s] = [Math.min(rows - 1, Math.floor(y * rows)), Math.min(columns - 1, Math.floor(x * columns))];
        const share = weights[first + t * columns + s].toFixed(2);
        canvas.title = `${look[t] || "⟨end⟩"} looks at ${seen[s] || "⟨end⟩"}: ${share}`;
      });
      figures.push(make("figure", {}, canvas, make("figcaption", { text: `layer ${layer + 1}, head ${head + 1}` })));
    }
    drawn.push(make("div", { className: "layer" }, ...figures));
  }
  place.append(title, ...drawn);
}
