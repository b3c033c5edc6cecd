// The options of decoding that have a control, with the ranges of the model.

import { make } from "./results.js";

const OPTIONS = [
  { name: "numBeams", label: "Beams", min: 1, max: (model) => model.maxBeams, step: 1 },
  { name: "numReturnSequences", label: "Alternatives", min: 1, max: (model) => model.maxBeams, step: 1 },
  { name: "lengthPenalty", label: "Length penalty", min: -10, max: () => 10, step: 0.01 },
  { name: "maxNewTokens", label: "Most tokens", min: 1, max: (model) => model.maxNewTokens, step: 1 },
  { name: "noRepeatNgramSize", label: "No repeated n-gram of", min: 0, max: () => 1000, step: 1 },
];

export function makeOptions(place, model, chosen) {
  place.replaceChildren(
    ...OPTIONS.map(({ name, label, min, max, step }) => {
      const own = model.defaultDecoding[name] ?? 0;
      const input = make("input", { type: "number", min, max: max(model), step, name, placeholder: String(own) });
      input.value = chosen[name] ?? "";
      const range = `${label} (${min} to ${max(model)})`;
      return make("label", {}, range, input);
    }),
  );
}

// Which value is out of its range, and what the browser says about it.
export function wrongOption(place) {
  const input = place.querySelector(":invalid");
  return input && `${input.labels[0].textContent}: ${input.validationMessage}`;
}

// What is set. More alternatives than beams, the model's own where none are set, take as many beams.
export function readOptions(place) {
  const set = [...place.querySelectorAll("input")].filter((input) => input.value !== "" && input.validity.valid);
  const decoding = Object.fromEntries(set.map((input) => [input.name, input.valueAsNumber]));
  const beams = decoding.numBeams ?? place.querySelector("[name=numBeams]")?.placeholder ?? 1;
  if ((decoding.numReturnSequences ?? 1) > Number(beams)) decoding.numBeams = decoding.numReturnSequences;
  return decoding;
}
