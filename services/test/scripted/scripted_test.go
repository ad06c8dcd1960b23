package scripted_test

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/providertest"
	"skandha.dev/services/test/scripted"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Subject{Name: "scripted", Without: map[string]string{
		"makes calls distinct whose ids are not": "it has none; servers have the model without limits",
		"lists its models":                       "it is not behind an API",
	}}, func(*testing.T) adapter.Adapter { return scripted.New() })
}
