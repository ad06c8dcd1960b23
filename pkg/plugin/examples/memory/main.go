// Memory is a plugin that reminds the agent of its notes. For each input, it searches for
// notes that share words with it, with the internal tool memory:retrieve, and adds the best
// ones as annotations that the model sees.
//
//	SKANDHA_NATS=… go run skandha.dev/pkg/plugin/examples/memory
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/plugin"
)

func main() {
	plugin.Main(plugin.Manifest{
		Name: "memory", Version: "1.0.0", Description: "Shows the model notes that are related to the input.",
	}, plugin.Handlers{
		plugin.AfterSense(remind, plugin.Deadline(5*time.Second)),
	})
}

// remind annotates each perception. If it fails, the turn continues without annotations.
func remind(ctx context.Context, c *plugin.HookCall[hook.PerceptionsData]) (plugin.Reply, error) {
	for i, p := range c.Data.Perceptions {
		found, err := c.CallTool(ctx, "memory:retrieve", map[string]any{
			"query": p.Text, "kinds": []memory.Kind{memory.Note}, "limit": 3,
		})
		if err != nil {
			return plugin.Reply{}, err
		}
		if !found.Success {
			return plugin.Reply{}, found.Error
		}
		var data struct {
			Memories []struct {
				Time    time.Time `json:"time"`    // of notes:add
				Created time.Time `json:"created"` // of a memory
				Text    string    `json:"text"`
			} `json:"memories"`
		}
		if err := json.Unmarshal(found.Data, &data); err != nil {
			return plugin.Reply{}, fmt.Errorf("reading the memories: %w", err)
		}
		for _, m := range data.Memories {
			c.Data.Perceptions[i].Annotations = append(c.Data.Perceptions[i].Annotations,
				fmt.Sprintf("A note of %s: %s", cmp.Or(m.Time, m.Created).Format(time.DateOnly), m.Text))
		}
	}
	return plugin.Replace(c.Data), nil
}
