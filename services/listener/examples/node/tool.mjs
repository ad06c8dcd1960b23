// A tool: turns a text into a slug, as used in addresses of web pages.
//
//   npm ci && eval "$(bin/skandha env --data .data words)" && node tool.mjs
import { serve } from "./skandha.mjs";

const manifest = {
  name: "words",
  version: "1.0.0",
  tools: [{
    name: "words:slug",
    description: "Turns a text into a slug: lower-case letters and digits with dashes, e.g. for file names and addresses.",
    args: {
      type: "object",
      properties: { text: { type: "string", minLength: 1 } },
      required: ["text"],
      additionalProperties: false,
    },
    idempotent: true,
    risk: "low",
    timeout_ms: 5000,
  }],
};

await serve(manifest, {
  // Gets schemas/tool/call.json and answers schemas/tool/result.json; ':' is '--' in a subject.
  async "tool.words.words--slug"({ args }) {
    const slug = args.text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().match(/[a-z0-9]+/g)?.join("-");
    if (!slug) return { success: false, error: { code: "tool_failed", message: "the text has no letter and no digit" } };
    return { success: true, data: { slug } };
  },
});
