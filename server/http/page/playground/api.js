// What this page asks the server that it comes from. Nothing goes elsewhere.

export class Refused extends Error {
  // An error in the server's own words, with its reason.
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

const refusal = async (response) => {
  const told = await response.json().catch(() => ({}));
  const info = (told.details ?? []).find((one) => one["@type"]?.endsWith("ErrorInfo"));
  return new Refused(response.status, info?.reason ?? `HTTP ${response.status}`, told.message ?? response.statusText);
};

const headers = (token) => ({
  "content-type": "application/json",
  ...(token && { authorization: `Bearer ${token}` }),
});

export async function listModels(token) {
  const body = { method: "POST", headers: headers(token), body: "{}" };
  const response = await fetch("dragoman.v1.ModelService/ListModels", body);
  if (!response.ok) throw await refusal(response);
  return (await response.json()).models ?? [];
}

// Where programs reach it that speak gRPC.
export async function grpcPort() {
  const response = await fetch("playground/ports.json");
  if (!response.ok) throw await refusal(response);
  return (await response.json()).grpc;
}

export async function translate({ content, ...rest }, token, signal) {
  const body = { method: "POST", headers: headers(token), body: JSON.stringify({ contents: [content], ...rest }), signal };
  const response = await fetch("dragoman.v1.TranslationService/Translate", body);
  if (!response.ok) throw await refusal(response);
  return (await response.json()).translations[0];
}

// Calls onDelta with every piece of text, and returns the whole translation. Aborting leaves the server's batch.
export async function stream(request, token, signal, onDelta) {
  const body = { method: "POST", headers: headers(token), body: JSON.stringify(request), signal };
  const response = await fetch("v1/translate:stream", body);
  if (!response.ok) throw await refusal(response);
  for await (const { event, data } of events(response.body)) {
    if (event === "delta") onDelta(data.text);
    else if (event === "translation") return data;
    else if (event === "error") throw new Refused(200, data.reason, data.message);
  }
  throw new Refused(200, "CUT", "the stream ended before its translation");
}

// Server-sent events of a body. (EventSource cannot post.)
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (pending + value).split("\n\n");
    pending = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
      if (fields.data !== undefined) yield { event: fields.event ?? "message", data: JSON.parse(fields.data) };
    }
  }
}

export async function metrics(token) {
  const response = await fetch("metrics", { headers: token ? { authorization: `Bearer ${token}` } : {} });
  if (!response.ok) throw await refusal(response);
  return await response.text();
}
