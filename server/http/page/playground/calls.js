// The request that was just made, for other programs.

import { make } from "./results.js";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// Puts a text where others are pasted from, and says so on the button that asked for it.
export async function copied(button, text, label) {
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

export function showCalls(place, request) {
  const { content, ...rest } = request;
  const json = JSON.stringify({ contents: [content], ...rest });
  const options = { ...rest, ...rest.decoding };
  delete options.decoding;
  const names = { sourceLanguageCode: "source_language", targetLanguageCode: "target_language" };
  const keywords = Object.entries(options).map(([name, value]) => `, ${names[name] ?? snake(name)}=${python(value)}`);
  const service = "dragoman.v1.TranslationService/Translate";
  const calls = {
    curl: `curl ${location.origin}/${service} -H 'content-type: application/json' -d ${quoted(json)}`,
    Python: `from dragoman import Client

with Client("${location.hostname}:8500") as client:
    print(client.translate(${python(content)}${keywords.join("")}).text)`,
    grpcurl: `grpcurl -plaintext -d ${quoted(json)} ${location.hostname}:8500 ${service}`,
  };
  place.replaceChildren(
    ...Object.entries(calls).flatMap(([name, text]) => {
      const copy = make("button", { type: "button", text: `Copy ${name}` });
      copy.addEventListener("click", () => copied(copy, text, `Copy ${name}`));
      return [make("h3", { text: name }), make("pre", { text, tabIndex: 0 }), copy];
    }),
  );
}
