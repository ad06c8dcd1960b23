package legacytest

import (
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/providertest"
)

const noFiles = "the provider service adds files from artifacts, which the suite does not store; the module's files_test does"

func TestConformance(t *testing.T) {
	r := start(t)
	providertest.Run(t, func(*testing.T) adapter.Adapter { return r.model },
		providertest.NoDeltas("the protocol of plugins has no deltas"),
		providertest.Without("shows the files of a message", noFiles),
		providertest.Without("names the files that it cannot show", noFiles),
		providertest.Without("shows the files of results", noFiles))
}
