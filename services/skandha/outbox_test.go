package main

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/coreapi"
)

// What is no message of core may be in the bucket.
func TestTheAgeOfAMessageMayBeUnknown(t *testing.T) {
	var out strings.Builder
	err := printOutbox(&out, coreapi.OutboxPage{Messages: []coreapi.OutboxMessage{
		{ID: "garbage"}, {ID: "a", State: coreapi.OutboxDead, Stored: time.Now().Add(-time.Hour)},
	}})
	lines := strings.Split(out.String(), "\n")
	if err != nil || !strings.Contains(lines[1], "unknown") || !strings.Contains(lines[2], "dead   1h0m") {
		t.Errorf("%v\n%s", err, &out)
	}
}
