// What a translation is shown as: its alternatives, its time, its alignment.

export const make = (name, { text, ...properties } = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
};

const number = (value, digits = 3) => make("td", { className: "number", text: value?.toFixed(digits) ?? "" });
const head = (...names) => make("thead", {}, make("tr", {}, ...names.map((text) => make("th", { text, scope: "col" }))));

const MOST_COMPARED = 2000; // words: twice as many take four times as long, and the page stands still meanwhile

// Words of a text that a longest common subsequence with another one lacks.
function different(words, others) {
  const size = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      size[i][j] = words[i] === others[j] ? size[i + 1][j + 1] + 1 : Math.max(size[i + 1][j], size[i][j + 1]);
  const found = new Set();
  for (let i = 0, j = 0; i < words.length; ) {
    if (j < others.length && words[i] === others[j]) i++, j++;
    else if (j < others.length && size[i][j + 1] >= size[i + 1][j]) j++;
    else found.add(i++);
  }
  return found;
}

export function showAlternatives(section, hypotheses) {
  section.hidden = hypotheses.length < 2;
  const best = hypotheses[0].text.split(" ");
  const compared = hypotheses.every((one) => one.text.split(" ").length <= MOST_COMPARED);
  const rows = hypotheses.map((one, rank) => {
    const words = one.text.split(" ");
    const changed = rank && compared ? different(words, best) : new Set();
    const cell = make("th", { scope: "row", dir: "auto" });
    words.forEach((text, i) => cell.append(i ? " " : "", changed.has(i) ? make("mark", { text }) : text));
    const reason = (one.finishReason ?? "").replace("FINISH_REASON_", "").toLowerCase().replace("_", " ");
    const share = one.score === undefined ? undefined : Math.exp(one.score);
    return make("tr", {}, cell, number(one.score), number(share), number(one.tokens ?? 0, 0), make("td", { text: reason }));
  });
  const text = compared ? "text, and what differs from the best" : "text, too long to show what differs";
  const columns = head(text, "score", "exp(score)", "tokens", "ended by");
  section.querySelector("table").replaceChildren(columns, make("tbody", {}, ...rows));
}

const PHASES = ["tokenize", "queue", "encode", "decode", "detokenize"];
const milliseconds = (duration) => 1000 * parseFloat(duration ?? "0");

export function showTime(section, timings) {
  section.hidden = false;
  const shares = PHASES.map((phase) => [phase, milliseconds(timings[phase])]);
  const total = shares.reduce((sum, [, ms]) => sum + ms, 0);
  const told = shares.map(([phase, ms]) => `${phase} ${ms.toFixed(2)} ms`);
  const bar = section.querySelector(".stack");
  bar.replaceChildren(
    ...shares.map(([className, ms]) => {
      const part = make("span", { className });
      part.style.flexGrow = (100 * ms) / (total || 1); // whose sum is below 1 do not fill the bar
      return part;
    }),
  );
  bar.setAttribute("aria-label", told.join(", "));
  const steps = `${timings.steps ?? 0} steps, ${(timings.meanBatchRows ?? 0).toFixed(1)} rows in each`;
  section.querySelector(".legend").replaceChildren(
    ...shares.map(([className], i) => make("li", { className, text: told[i] })),
    make("li", { text: `all ${total.toFixed(2)} ms` }),
    make("li", { text: steps }),
  );
}

// Spans count characters, and JavaScript's strings do not.
export const pieces = (text, spans) => {
  const characters = Array.from(text);
  return spans.map((span) => characters.slice(span.begin ?? 0, span.end ?? 0).join(""));
};

export function showAlignment(section, source, target, alignment) {
  section.hidden = !alignment;
  if (!alignment) return;
  const [from, to] = [pieces(source, alignment.sourceSpans ?? []), pieces(target, alignment.targetSpans ?? [])];
  const weights = new Map((alignment.links ?? []).map((link) => [`${link.target ?? 0} ${link.source ?? 0}`, link.weight]));
  const weight = (t, s) => weights.get(`${t} ${s}`) ?? 0;
  const shown = (list) => list.map((text, i) => [text, i]).filter(([text]) => text);
  const rows = shown(to).map(([word, t]) => {
    const cells = shown(from).map(([other, s]) => {
      const cell = make("td", { title: `${word}, ${other}: ${weight(t, s).toFixed(2)}` });
      cell.style.setProperty("--weight", weight(t, s).toFixed(3));
      cell.setAttribute("aria-label", weight(t, s).toFixed(2));
      return cell;
    });
    return make("tr", {}, make("th", { text: word, scope: "row", dir: "auto" }), ...cells);
  });
  const columns = head("", ...shown(from).map(([text]) => text));
  columns.querySelector("th").replaceWith(make("td"));
  section.querySelector("table").replaceChildren(columns, make("tbody", {}, ...rows));
  const [sources, targets] = [section.querySelector("#source-words"), section.querySelector("#target-words")];
  const buttons = (list, line) => {
    const made = new Map(shown(list).map(([text, i]) => [i, make("button", { type: "button", text })]));
    line.replaceChildren(...[...made.values()].flatMap((button, i) => (i ? [" ", button] : [button])));
    return made;
  };
  const [sourceButtons, targetButtons] = [buttons(from, sources), buttons(to, targets)];
  const link = (mine, others, linked) =>
    mine.forEach((button, i) => {
      const mark = (on) => [button, ...[...others].filter(([j]) => linked(i, j) >= 0.1).map(([, other]) => other)]
        .forEach((one) => one.classList.toggle("partner", on));
      for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => mark(true));
      for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => mark(false));
    });
  link(targetButtons, sourceButtons, weight);
  link(sourceButtons, targetButtons, (s, t) => weight(t, s));
}
