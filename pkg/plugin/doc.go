// Package plugin connects a Go program to a running Skandha. A plugin can offer hooks,
// tools, language models, storage, guides, listeners and sensors. The package also
// defines the types of the protocol between plugins and the registry.
//
// This is a complete plugin with a policy and a tool:
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
//					return plugin.Deny("this house is read-only"), nil
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
// Run it after eval "$(skandha env house)", which sets SKANDHA_NATS and SKANDHA_DATA. The policy
// applies from the next tool call, and the model has the tool from its next request. Both
// are removed when the program ends. The directory examples has more plugins.
//
// # Subjects
//
//	plugin.register.<name>      sends Manifest, receives Lease; once, and when the lease is lost
//	plugin.heartbeat.<name>     sends Heartbeat, receives Lease; three times per lease TTL
//	plugin.unregister.<name>    sends Unregister, receives Lease; before and after draining
//	hook.<point>.<name>         receives hook.Envelope, replies hook.Reply
//	tool.<name>.<encoded tool>  receives tool.Call, replies tool.Result
//	llm.<name>.generate         receives provider.Call, replies provider.Reply
//	<either of both>.<instance> the same, addressed to this process
//	storage.<name>.<verb>       receives StorageRequest, replies StorageReply
//	storage.<name>.<verb>       of an index: receives IndexRequest, replies IndexReply
//	guide.<name>                receives guide.Request, replies guide.Guide
//	agent.<agent>.<session>.sense.input.<listener>   published by an Emitter
//
// The plugin's name is its queue group: several processes that register the same
// manifest share the work. Replies are sent only to reply.<caller>.<name>.…, so a plugin
// can only answer callers that sent it a request.
//
// # Guarantees
//
// [Serve] subscribes before it registers, so an active plugin always answers. There is one
// exception: if another plugin held its name or the name of one of its tools, Serve
// registers first and subscribes immediately afterwards.
//
// If one process receives the same tool call and attempt twice, it runs the tool once and
// answers both. The same holds for a hook invocation with the same data, and for a plan and
// attempt of a model. The memory is bounded: about a thousand answers, 64 MiB, for each
// tool, hook and model. A tool call whose answer was dropped from memory is answered with
// outcome_unknown until its deadline. The memory ends with the process, and replicas do not
// share it.
//
// An input is in the log once [Emitter.EmitInput] has returned its sequence.
//
// Handlers run concurrently and in no particular order, up to [Concurrency] at a time for
// each capability. Listeners run while the plugin is active, each on one goroutine.
//
// # Failures
//
// An error or a panic of a handler is answered with an error; a panic is also logged with
// its stack. Core then applies the hook's on_error rule, or reports a failure of the tool or
// provider. A handler that respects its context ends at the deadline. One that does not
// occupies its slot until it returns, and its late answer is ignored.
//
// When the bus is unavailable, the plugin retries the connection forever. After it has
// reconnected, it sends the answers that could not be sent, and the latest ones before the
// loss, again. When core is unavailable, the plugin keeps answering and keeps trying; no
// lease expires while no core is running. When the lease is lost (not_found), the plugin
// registers again. When its name or a tool's name is taken (conflict), it waits until the
// name is free. When it is rejected (invalid_argument, denied), Serve returns that error.
// When an operator unloads it, it drains, and Serve returns [ErrUnloaded].
//
// # Testing
//
// Handlers are functions: call them. [Handlers.Complete] returns the manifest, or
// everything that is wrong with it, without a bus. `skandha plugins test` runs the
// program against a separate system.
//
// For other languages, the same types are defined in schemas/manifest.v1.json,
// schemas/plugin and schemas/storage, and in the schemas of the packages hook, tool,
// provider and guide. A test compares the schemas with these types.
package plugin
