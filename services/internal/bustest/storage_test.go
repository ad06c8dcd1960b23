package bustest

import (
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/natstest"
)

// Who brings a server of his own, with the limits that it makes for itself, is told what
// to change.
func TestAServerWithTooLittleRoomIsToldOf(t *testing.T) {
	for room, what := range map[int64]string{1 << 30: "stream SESSIONS: JetStream has fewer than the 8192 MiB left", 10 << 30: "bucket claims: JetStream has fewer than the 4096 MiB left"} {
		s := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.MaxStore = room }))
		b := natstest.Dial(t, bus.Config{InProcess: s, Token: s.Token()})
		err := b.EnsureStreams(natstest.Context(t), bus.StreamsConfig{})
		if err == nil || !strings.Contains(err.Error(), "creating "+what) || !strings.Contains(err.Error(), "max_file_store") {
			t.Errorf("with %d MiB: %v", room>>20, err)
		}
	}
}
