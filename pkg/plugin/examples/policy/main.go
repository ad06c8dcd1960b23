// Policy is a plugin with one rule per tool call: nothing is written below
// /etc, and before anything is written elsewhere a person is asked. As it answers
// before_act, a call is refused while it hangs or talks garbage.
//
//	SKANDHA_NATS=… go run skandha.dev/pkg/plugin/examples/policy
package main

import (
	"context"
	"encoding/json"
	"path"
	"strings"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
)

func main() {
	plugin.Main(plugin.Manifest{
		Name: "policy", Version: "1.0.0", Description: "Asks before files are written.", Priority: 100,
	}, plugin.Handlers{
		plugin.BeforeAct(check, plugin.Deadline(500*time.Millisecond)),
	})
}

func check(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
	if c.Data.Tool != "file_system:write_file" {
		return plugin.Continue(), nil
	}
	var args struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(c.Data.Args, &args); err != nil {
		return plugin.Reply{}, err // counts as a denial
	}
	if strings.HasPrefix(path.Clean("/"+args.Path), "/etc/") {
		return plugin.Deny("nothing is written below /etc"), nil
	}
	return plugin.Confirm(hook.LevelWarn, "The agent wants to write "+args.Path+"."), nil
}
