package main

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

func TestSessionsAreListedBelowThoseThatTheyWorkFor(t *testing.T) {
	row := func(session, above string) coreapi.SessionRow {
		return coreapi.SessionRow{Ref: subject.Ref{Agent: "a", Session: subject.Session(session)}, Above: above}
	}
	var got []string
	for _, p := range below([]coreapi.SessionRow{
		row("deep", "a/left"), row("left", "a/top"), row("orphan", "a/elsewhere"), row("top", ""), row("right", "a/top"),
	}) {
		got = append(got, fmt.Sprint(p.depth, p.Session))
	}
	if want := "0orphan 0top 1left 2deep 1right"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
