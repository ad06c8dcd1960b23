package scripted_test

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/providertest"
	"skandha.dev/services/test/scripted"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, func(*testing.T) adapter.Adapter { return scripted.New() },
		providertest.Without("makes calls distinct whose ids are not", "it has none; servers have the model without limits"))
}
