// The page: it asks as you type, and shows what comes back.

import { Refused, grpcPort, listModels, stream, translate } from "./api.js";
import { showAttention } from "./attention.js";
import { copied, showCalls } from "./calls.js";
import { makeOptions, readOptions, wrongOption } from "./options.js";
import { make, pieces, showAlignment, showAlternatives, showTime } from "./results.js";
import { watchService } from "./service.js";

const TYPING_MS = 400;
const $ = (id) => document.getElementById(id);
const [text, output, options, told] = ["text", "output", "options", "told"].map($);
let [models, model, port, running, timer] = [[], null, 8500, null, 0];

const token = () => $("token").value;

// State is in the address after #, which no server is sent.
const state = () => ({
  text: text.value,
  model: model?.name,
  source: $("source").value,
  target: $("target").value,
  ...readOptions(options),
});
const remembered = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function refuse(error, place = told) {
  if (error instanceof Refused && [401, 403].includes(error.status)) $("key").hidden = false;
  place.textContent = error instanceof Refused ? `${error.message} (${error.reason})` : `The server does not answer: ${error.message}`;
  place.classList.add("error");
}

function request() {
  const wrong = wrongOption(options);
  if (wrong) throw new Refused(400, "OPTION_OUT_OF_RANGE", wrong);
  const decoding = { ...readOptions(options), ...(model.aligns && { withAlignment: true }) };
  const asked = {
    content: text.value,
    model: model.name,
    sourceLanguageCode: $("source").value,
    targetLanguageCode: $("target").value,
    ...(Object.keys(decoding).length && { decoding }),
  };
  return [...sentences.segment(asked.content.trim())].length > 1 ? inSentences(asked) : asked;
}

async function ask() {
  clearTimeout(timer);
  running?.abort();
  if (!model) return; // nothing is known yet, such as without a token: what was told stays, and so does the address
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(state()).filter(([, value]) => value !== ""))}`);
  told.textContent = "";
  told.classList.remove("error");
  $("maps").replaceChildren();
  if (!text.value.trim()) return clear();
  running = new AbortController();
  output.setAttribute("aria-busy", "true");
  const signal = running.signal;
  let written = "";
  try {
    let [asked, translation] = [request(), null];
    try {
      if (asked.segmentation) translation = await translate(asked, token(), signal);
      else translation = await stream(asked, token(), signal, (delta) => (output.textContent = written += delta));
    } catch (error) {
      if (error.reason !== "SOURCE_TOO_LONG" || asked.segmentation) throw error;
      translation = await translate((asked = inSentences(asked)), token(), signal);
    }
    show(asked, translation);
  } catch (error) {
    if (error.name === "AbortError") return;
    clear(written); // what is seen is of the request before
    refuse(error);
  } finally {
    if (!signal.aborted) output.setAttribute("aria-busy", "false");
  }
}

// Several sentences, or what is too long for the model: the server takes it apart, and it comes all at once.
function inSentences({ decoding: { withAlignment, ...decoding } = {}, ...rest }) {
  return { ...rest, ...(Object.keys(decoding).length && { decoding }), segmentation: "SEGMENTATION_SENTENCES" };
}

const sentences = new Intl.Segmenter(undefined, { granularity: "sentence" });

function clear(written = "") {
  output.textContent = written;
  output.setAttribute("aria-busy", "false");
  $("copy").hidden = true;
  for (const id of ["alternatives", "time", "alignment", "attention", "as-call"]) $(id).hidden = true;
}

function show(asked, translation) {
  const [best] = translation.hypotheses;
  output.textContent = best.text ?? "";
  $("copy").hidden = !output.textContent;
  const guards = (translation.guards ?? []).map((guard) => guard.replace("GUARD_", "").toLowerCase().replace("_", " "));
  const sentences = translation.sentences?.length;
  const score = best.score === undefined ? "" : `, score ${best.score.toFixed(3)}`; // several sentences have none
  told.textContent = [
    ...(sentences ? [`${sentences} sentences`] : []),
    `${translation.sourceTokens ?? 0} tokens became ${best.tokens ?? 0}${score}`,
    ...(guards.length ? [`it may be wrong: ${guards.join(", ")}`] : []),
  ].join("; ");
  showAlternatives($("alternatives"), translation.hypotheses.map((one) => ({ text: "", ...one })));
  showTime($("time"), translation.timings);
  showAlignment($("alignment"), asked.content, best.text ?? "", best.alignment);
  showCalls($("calls"), asked, port, token() !== "");
  $("as-call").hidden = false;
  $("attention").hidden = !model.attends || asked.segmentation !== undefined;
}

async function look() {
  try {
    const asked = request();
    const decoding = { ...asked.decoding, numReturnSequences: 1, withAttention: true };
    const translation = await translate({ ...asked, decoding }, token(), running.signal);
    const [best] = translation.hypotheses;
    const source = pieces(asked.content, translation.sourceAttention.spans);
    $("maps").replaceChildren();
    showAttention($("maps"), "Translation to text", best.attention, best.text, source);
    showAttention($("maps"), "Text to itself", translation.sourceAttention, asked.content, source);
  } catch (error) {
    if (error.name === "AbortError") return;
    $("maps").replaceChildren(make("p", { className: "note", role: "alert" }));
    refuse(error, $("maps").firstChild); // where it was asked for, a screen or two below the text
  }
}

// Tags that the browser has no name for stay as they are.
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const languageName = (tag) => {
  try {
    return names.of(tag);
  } catch {
    return tag;
  }
};

const fill = (select, values, chosen, name = (value) => value) => {
  select.replaceChildren(...values.map((value) => make("option", { text: name(value), value })));
  if (values.includes(chosen)) select.value = chosen;
};

function choose(name, wanted = {}) {
  model = models.find((one) => one.name === name) ?? models[0];
  fill($("model"), models.map((one) => one.name), model.name);
  fill($("source"), model.sourceLanguageCodes ?? [], wanted.source, languageName);
  fill($("target"), model.targetLanguageCodes ?? [], wanted.target, languageName);
  makeOptions(options, model, { ...readOptions(options), ...wanted });
  const layers = `${model.encoderLayers ?? 0}+${model.decoderLayers ?? 0} layers of ${model.width}`;
  const device = model.executionProvider.replace("ExecutionProvider", "");
  $("about").textContent = `${model.name}: ${layers}, ${model.precision} on ${device}, ${model.rows} rows`;
}

// The other way round: with this model, if it has both languages on both sides, else with another one.
function swap() {
  if (!model) return;
  const [source, target] = [$("target").value, $("source").value];
  const has = (one) => (one.sourceLanguageCodes ?? []).includes(source) && (one.targetLanguageCodes ?? []).includes(target);
  const other = has(model) ? model : models.find(has);
  if (!other) {
    told.textContent = `No model here translates from ${languageName(source)} to ${languageName(target)}.`;
    return;
  }
  if (output.textContent && output.getAttribute("aria-busy") === "false") text.value = output.textContent;
  choose(other.name, { source, target });
  ask();
}

async function start() {
  const wanted = remembered();
  try {
    port = await grpcPort();
    models = (await listModels(token())).filter((one) => (one.tasks ?? []).includes("TASK_TRANSLATE"));
  } catch (error) {
    return refuse(error);
  }
  if (!models.length) return refuse(new Refused(200, "MODEL_NOT_FOUND", "no model of this server translates"));
  choose(wanted.model, wanted);
  if (text.value) ask();
}

// An address that is followed on this page, or changed by hand, loads nothing anew.
function recall() {
  const wanted = remembered();
  text.value = wanted.text ?? text.value;
  if (!model) return;
  options.replaceChildren();
  choose(wanted.model ?? model.name, wanted);
  ask();
}

text.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(ask, TYPING_MS);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
$("ask").addEventListener("submit", (event) => event.preventDefault());
$("ask").addEventListener("change", (event) => {
  if (event.target === $("model")) choose(event.target.value);
  if (event.target === $("token")) start();
  else if (event.target !== text) ask();
});
$("swap").addEventListener("click", swap);
$("look").addEventListener("click", look);
$("copy").addEventListener("click", () => copied($("copy"), output.textContent, "Copy"));
watchService($("figures"), $("chart"), token);
addEventListener("hashchange", recall);
text.value = remembered().text ?? text.value;
start();
