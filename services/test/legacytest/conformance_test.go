package legacytest

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/providertest"
)

func TestConformance(t *testing.T) {
	r := start(t)
	providertest.Run(t, func(*testing.T) adapter.Adapter { return r.model },
		providertest.NoDeltas("the protocol of plugins has no deltas"))
}
