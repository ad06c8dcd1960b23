// A provider: a language model of 1966. It answers as ELIZA did, and calls a tool on request:
// "use words:slug {"text": "Hello World"}".
//
//   npm ci && eval "$(bin/skandha env --data .data eliza)" && node provider.mjs
import { serve } from "./skandha.mjs";

const manifest = {
  name: "eliza",
  version: "1.0.0",
  providers: [{ name: "eliza", model: "eliza-1966", note: "rules, no language model" }],
};

const rules = [
  [/^use (\S+)\s*(\{.*\})?$/is, (tool, args) => ({ tool, args: JSON.parse(args ?? "{}") })],
  [/\bi need (.*?)[.!?]*$/i, (what) => `Why do you need ${what}?`],
  [/\bi am (.*?)[.!?]*$/i, (what) => `How long have you been ${what}?`],
  [/\bmy (mother|father|family)\b/i, (who) => `Tell me more about your ${who}.`],
  [/\?$/, () => "Why do you ask?"],
  [/^/, () => "Please go on."],
];

function reply({ messages }) {
  const said = messages.findLastIndex((m) => m.role === "user");
  const results = messages.slice(said).filter((m) => m.role === "tool"); // of the calls since then
  if (results.length) return results.map((m) => `${m.tool} says: ${m.text}`).join("\n");
  const text = messages[said]?.text.trim() ?? "";
  const [pattern, make] = rules.find(([pattern]) => pattern.test(text));
  return make(...text.match(pattern).slice(1));
}

await serve(manifest, {
  // Gets schemas/provider/call.json and answers schemas/provider/reply.json.
  async "llm.eliza.generate"({ plan, request }) {
    let answer;
    try {
      answer = reply(request);
    } catch (e) {
      return { error: { code: "bad_request", message: e.message, retryable: false } };
    }
    const usage = { input_tokens: 0, output_tokens: 0 };
    if (typeof answer === "string") {
      return { response: { is_final: true, text_content: answer, stop_reason: "end", model: "eliza-1966", usage } };
    }
    const call = { id: `${plan}-1`, ...answer }; // schemas/provider/tool_call.json
    return { response: { is_final: false, tool_calls: [call], stop_reason: "tool_calls", model: "eliza-1966", usage } };
  },
});
