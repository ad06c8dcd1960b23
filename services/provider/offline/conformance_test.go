package offline_test

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/offline"
	"skandha.dev/services/test/providertest"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) adapter.Adapter { return model(t, offline.TestRules) })
}
