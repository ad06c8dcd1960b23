package legacytest

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/providertest"
)

func TestConformance(t *testing.T) {
	r := start(t)
	providertest.Run(t, providertest.GeminiLegacy, func(*testing.T) adapter.Adapter { return r.model })
}
