// Package plugin is how a Go program takes part in a Skandha that runs: with hooks,
// tools, language models, storage, guides, listeners and sensors. It is also the
// contract between any plugin and the registry, in types.
//
// This is a whole plugin, a policy and a tool:
//
//	package main
//
//	import (
//		"context"
//
//		"skandha.dev/pkg/hook"
//		"skandha.dev/pkg/plugin"
//	)
//
//	func main() {
//		plugin.Main(plugin.Manifest{Name: "house", Version: "1.0.0"}, plugin.Handlers{
//			plugin.BeforeAct(func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
//				if c.Data.Tool == "file_system:write_file" {
//					return plugin.Deny("nothing is written in this house"), nil
//				}
//				return plugin.Continue(), nil
//			}),
//			plugin.Tool("house:rooms", "Lists the rooms of a floor.", func(_ context.Context, args struct {
//				Floor int `json:"floor" desc:"0 is the ground floor" min:"0" max:"2" default:"0"`
//			}) ([]string, error) {
//				return [][]string{{"hall", "kitchen"}, {"bed", "bath"}, {"attic"}}[args.Floor], nil
//			}),
//		})
//	}
//
// Run it after eval "$(skandha env)", which sets SKANDHA_NATS and SKANDHA_DATA. From the next
// tool call on the policy holds, and from the next question on the model has the
// tool. End it, and both are gone. More of them stand in the directory examples.
//
// # What is sent and answered
//
//	plugin.register.<name>      Manifest    -> Lease, once, and when the lease was lost
//	plugin.heartbeat.<name>     Heartbeat   -> Lease, every third of its time
//	plugin.unregister.<name>    Unregister  -> Lease, before and after draining
//	hook.<point>.<name>         asked with hook.Envelope, answers hook.Reply
//	tool.<name>.<encoded tool>  asked with tool.Call, answers tool.Result
//	llm.<name>.generate         asked with provider.Call, answers provider.Reply
//	<either of both>.<instance> the same, asked of this process
//	storage.<name>.<verb>       asked with StorageRequest, answers StorageReply
//	guide.<name>                asked with guide.Request, answers guide.Guide
//	agent.<agent>.<session>.sense.input.<listener>   what an Emitter sends
//
// The plugin's name is its queue group: several processes that register the same
// manifest share the work. Answers go to reply.<name>.<caller>.<n> alone, so that a
// plugin can answer nobody who has not asked it.
//
// # What is promised
//
// [Serve] is subscribed before it is registered: once the plugin is active, it
// answers. (After its name or a tool's was another's, it registers first and
// subscribes at once: until then the subjects were not its own.)
//
// The same tool call and attempt, asked twice of one process, runs once and is
// answered twice. The same holds for a hook invocation with the same data, and for a
// plan and attempt of a model. The memory is bounded: about a thousand answers, 64
// MiB, for each tool, hook and model. A tool call whose answer was dropped is answered
// with outcome_unknown until its deadline. The memory ends with the process, and
// replicas do not share it.
//
// An input that [Emitter.EmitInput] gave a sequence for is in the log.
//
// Handlers run at the same time, up to [Concurrency] for each capability, in no
// order. Listeners run while the plugin is active, each on one goroutine.
//
// # When something fails
//
// A handler's error or panic is answered as one; a panic is logged with its stack.
// What core makes of it: a hook's on_error rule, a tool's failure, a provider's
// error. A handler that heeds its context is over at the deadline; one that does
// not keeps its place until it returns, and its answer comes too late to count.
//
// When the bus is away, the connection is retried forever. Answers that could not be
// sent, and the latest ones before the loss, are sent again after the reconnect. When
// core is away, the plugin keeps answering and keeps trying; no lease ends while no
// core is there to end it. When the lease is lost (not_found), it registers again.
// When its name or a tool's name is taken (conflict), it waits until the name is free.
// When it is refused (invalid_argument, denied), Serve returns that error. When an
// operator unloads it, it drains, and Serve returns [ErrUnloaded].
//
// # Testing
//
// Handlers are functions: call them. [Handlers.Complete] gives the manifest, or
// everything that is wrong with it, without a bus. `skandha plugins test` runs the
// program against a system of its own.
//
// The types are stated for other languages in schemas/manifest.v1.json,
// schemas/plugin, schemas/storage and the packages hook, tool, provider and guide;
// a test holds the two together.
package plugin
