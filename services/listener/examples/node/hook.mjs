// A hook that notes for every answer which tools it used, and one that asks a person before a file is replaced.
//
//   npm ci && eval "$(bin/skandha env --data .data careful)" && node hook.mjs
import { serve } from "./skandha.mjs";

const manifest = {
  name: "careful",
  version: "1.0.0",
  description: "Asks before files are replaced, and notes the tools that were used.",
  hooks: [{ point: "before_act" }, { point: "before_reflect", deadline_ms: 500 }],
};

await serve(manifest, {
  // Each gets schemas/hooks/envelope.json and answers schemas/hooks/reply.json.
  async "hook.before_act.careful"({ data: act }) {
    if (act.tool !== "file_system:write_file" || act.args.mode !== "overwrite") return { verb: "continue" };
    return { verb: "confirm", warning: { level: "warn", message: `What is in ${act.args.path} will be lost.` } };
  },
  async "hook.before_reflect.careful"({ data: experience }) {
    if (!experience.tools?.length) return { verb: "continue" };
    return { verb: "replace", data: { ...experience, notes: [...(experience.notes ?? []), `used ${experience.tools.join(", ")}`] } };
  },
});
