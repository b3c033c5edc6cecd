// Clients of npm that nobody here wrote, unchanged, against a server with models/zoo/en-pt. Prints JSON, and ends with 1
// where one of them fails.
//
//     npm install --no-package-lock --prefix tests/server/node
//     node tests/server/node/clients.mjs 127.0.0.1:8500 http://127.0.0.1:8580

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import * as deepl from "deepl-node";

const require = createRequire(import.meta.url);
const [target, url] = process.argv.slice(2);
const text = "Good morning.";
const descriptors = readFileSync(fileURLToPath(new URL("../../../deploy/envoy/dragoman.pb", import.meta.url)));

const version = (name) => {
  const file = fileURLToPath(new URL(`node_modules/${name}/package.json`, import.meta.url));
  return JSON.parse(readFileSync(file, "utf8")).version;
};

async function grpcJs() {
  const { dragoman } = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(descriptors));
  const client = new dragoman.v1.TranslationService(target, grpc.credentials.createInsecure());
  const call = (request) => new Promise((done, failed) =>
    client.Translate(request, (error, response) => (error ? failed(error) : done(response))));
  const { translations } = await call({ contents: [text], decoding: { num_beams: 4, num_return_sequences: 2 } });
  const refused = await call({ contents: [" "] }).catch((error) => error);
  const deltas = [];
  for await (const { text_delta: delta } of client.StreamTranslate({ content: text })) {
    if (delta) deltas.push(delta);
  }
  client.close();
  return {
    translation: translations[0].hypotheses[0].text,
    hypotheses: translations[0].hypotheses.length,
    stream: deltas.join(""),
    refused: grpc.status[refused.code] === "INVALID_ARGUMENT",
  };
}

async function connect() {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, descriptors));
  const told = {};
  for (const useBinaryFormat of [false, true]) {
    const transport = createConnectTransport({ baseUrl: url, httpVersion: "1.1", useBinaryFormat });
    const client = createClient(registry.getService("dragoman.v1.TranslationService"), transport);
    const { translations } = await client.translate({ contents: [text] });
    const refused = await client.translate({ contents: [" "] }).catch((error) => error);
    told[useBinaryFormat ? "binary" : "json"] = translations[0].hypotheses[0].text;
    told.refused = refused.code === Code.InvalidArgument && (told.refused ?? true);
  }
  return { translation: told.json, binary: told.binary, refused: told.refused };
}

async function deeplNode() {
  const client = new deepl.DeepLClient("any", { serverUrl: url });
  const { text: translation, detectedSourceLang } = await client.translateText(text, null, "pt-PT");
  const refused = await client.translateText(text, null, "ja").catch((error) => error);
  return { translation, source: detectedSourceLang, refused: refused instanceof deepl.DeepLError };
}

async function libretranslate() {
  const { translate } = require("libretranslate");
  const asked = { query: text, source: "en", apiurl: url };
  const refused = await translate({ ...asked, target: "ja" }).catch((error) => error);
  return { translation: await translate({ ...asked, target: "pt" }), refused: refused instanceof TypeError };
}

const found = {};
const clients = {
  "@grpc/grpc-js": grpcJs,
  "@connectrpc/connect": connect,
  "deepl-node": deeplNode,
  libretranslate,
};
for (const [name, client] of Object.entries(clients)) {
  try {
    found[name] = { version: version(name), ...(await client()) };
    if (!found[name].translation || !found[name].refused) process.exitCode = 1;
  } catch (error) {
    found[name] = { version: version(name), failed: String(error) };
    process.exitCode = 1;
  }
}
console.log(JSON.stringify(found, null, 1));
