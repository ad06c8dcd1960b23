// Package clock provides the tool time:now.
package clock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	_ "time/tzdata" // containers have none

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Now returns the tool that tells the time by the machine's clock.
func Now() tools.Tool {
	return tools.New(tool.Spec{
		Name: "time:now",
		Description: "Tells the current date and time, in UTC and in a time zone. " +
			"Use it whenever the answer depends on what day or time it is.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"timezone":{"type":"string","maxLength":64,"default":"UTC","description":"IANA name of the time zone, such as Europe/Berlin; default UTC"}},
			"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, ScenarioTags: []string{"information_retrieval"}, TimeoutMS: 5_000,
	}, func(_ context.Context, _ tools.Call, args struct {
		Timezone string `json:"timezone"`
	},
	) tool.Result {
		return at(time.Now(), args.Timezone)
	})
}

func at(now time.Time, zone string) tool.Result {
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return tools.Fail(fmt.Errorf("unknown timezone %q; use an IANA name such as Europe/Berlin, or UTC", zone))
	}
	local := now.In(loc)
	return tool.OK(map[string]any{
		"utc":      now.UTC().Format(time.RFC3339),
		"local":    local.Format(time.RFC3339),
		"timezone": loc.String(),
		"weekday":  local.Weekday().String(),
		"unix":     now.Unix(),
	})
}
