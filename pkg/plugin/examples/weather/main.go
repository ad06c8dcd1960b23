// Weather is a plugin with one tool, whose schema is derived from the struct of its
// arguments.
//
//	SKANDHA_NATS=… go run skandha.dev/pkg/plugin/examples/weather
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/tool"
)

func main() {
	plugin.Main(plugin.Manifest{Name: "weather", Version: "1.0.0"}, plugin.Handlers{
		plugin.Tool("weather:forecast", "Returns the weather forecast for a place.", forecast,
			plugin.Idempotent(), plugin.Scenarios("information_retrieval"), plugin.Timeout(5*time.Second)),
	})
}

// Question is the tool's arguments.
type Question struct {
	Place string `json:"place" desc:"A town, such as Oslo" min:"1" max:"100"`
	Days  int    `json:"days" desc:"How many days ahead" min:"1" max:"7" default:"1"`
	Unit  string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
}

// Day is the forecast for one day.
type Day struct {
	Day  int     `json:"day"`
	Sky  string  `json:"sky"`
	High float64 `json:"high"`
}

func forecast(_ context.Context, q Question) ([]Day, error) {
	if q.Place == "Atlantis" {
		return nil, &tool.Error{Code: tool.CodeFailed, Message: "no forecast for Atlantis; use a place above sea level"}
	}
	days := make([]Day, q.Days)
	for i := range days {
		h := fnv.New32a() // a real tool would call a service
		_, _ = fmt.Fprint(h, q.Place, i)
		days[i] = Day{Day: i + 1, Sky: []string{"sun", "clouds", "rain"}[h.Sum32()%3], High: float64(h.Sum32() % 30)}
		if q.Unit == "fahrenheit" {
			days[i].High = days[i].High*9/5 + 32
		}
	}
	return days, nil
}
