// Policy is a plugin that denies writes below /etc, and requires a person's approval for
// writes elsewhere. As a hook at before_act it fails closed: while the plugin hangs or sends
// invalid replies, calls are denied.
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
		return plugin.Deny("files below /etc must not be written"), nil
	}
	return plugin.Confirm(hook.LevelWarn, "The agent wants to write "+args.Path+"."), nil
}
