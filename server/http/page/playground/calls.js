// The request that was just made, for other programs.

import { make } from "./results.js";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));
const names = { sourceLanguageCode: "source_language", targetLanguageCode: "target_language" };

// Puts a text where others are pasted from, and says so on the button that asked for it, which keeps the keyboard.
export async function copied(button, text, label) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copySelected(text);
    button.focus();
  }
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = label), 1500);
}

// Pages by plain HTTP have no clipboard, but for those of this machine, and a browser may refuse it.
function copySelected(text) {
  const area = make("textarea", { value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

// port: of gRPC. token: whether one is needed; the calls take it from the environment.
export function showCalls(place, request, port, token) {
  const { content, ...rest } = request;
  const json = JSON.stringify({ contents: [content], ...rest });
  const { decoding = {}, segmentation, ...others } = rest;
  const options = { ...others, ...(segmentation && { segmentation: "sentences" }), ...decoding };
  const keywords = Object.entries(options).map(([name, value]) => `, ${names[name] ?? snake(name)}=${python(value)}`);
  const service = "dragoman.v1.TranslationService/Translate";
  const [secure, target] = [location.protocol === "https:", `${location.hostname}:${port}`];
  const header = token ? ` -H "authorization: Bearer $DRAGOMAN_TOKEN"` : "";
  const server = [`"${target}"`, ...(secure ? ["tls=TlsOptions()"] : []), ...(token ? [`token=os.environ["DRAGOMAN_TOKEN"]`] : [])];
  const asked = `client.translate(${python(content)}${keywords.join("")})`;
  const printed = decoding.numReturnSequences > 1
    ? `for one in ${asked}.hypotheses:\n        print(one.score, one.text)`
    : `print(${asked}.text)`;
  const calls = {
    curl: `curl ${new URL(service, location)} -H 'content-type: application/json'${header} -d ${quoted(json)}`,
    Python: `${token ? "import os\n\n" : ""}from dragoman import Client${secure ? ", TlsOptions" : ""}

with Client(${server.join(", ")}) as client:
    ${printed}`,
    grpcurl: `grpcurl${secure ? "" : " -plaintext"}${header} -d ${quoted(json)} ${target} ${service}`,
  };
  place.replaceChildren(
    ...Object.entries(calls).flatMap(([name, text]) => {
      const copy = make("button", { type: "button", text: `Copy ${name}` });
      copy.addEventListener("click", () => copied(copy, text, `Copy ${name}`));
      return [make("h3", { text: name }), make("pre", { text, tabIndex: 0 }), copy];
    }),
  );
}
