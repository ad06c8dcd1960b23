package main

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
)

func TestAListOfIdentitiesNamesRefusals(t *testing.T) {
	now := time.Date(2026, time.January, 2, 0, 0, 0, 0, time.UTC)
	var out strings.Builder
	err := printIdentities(&out, coreapi.IdentitiesPage{Rights: true, Identities: []coreapi.Identity{
		{Charter: rights.Charter{Name: "clock", Tools: []string{"clock"}}, State: coreapi.IdentityActive, By: "ann"},
		{
			Charter: rights.Charter{Name: "weather", Tools: []string{"weather"}}, State: coreapi.IdentityRevoked, By: "ann",
			Refused: &coreapi.Refusal{At: now.Add(-time.Minute), Cause: "it was revoked"},
		},
	}}, now)
	if err != nil || !strings.HasSuffix(out.String(), "\nweather was refused 1m0s ago: it was revoked\n") ||
		strings.Contains(out.String(), "clock was refused") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
