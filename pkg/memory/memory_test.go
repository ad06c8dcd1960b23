package memory_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/memory"
)

func TestCheckNamesTheField(t *testing.T) {
	good := memory.Memory{
		ID: "m1", Agent: "main", Kind: memory.Fact, Text: "Ann likes tea.", Source: memory.Source{Origin: memory.FromPerson},
	}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*memory.Memory){
		"id is":            func(m *memory.Memory) { m.ID = "" },
		"agent is":         func(m *memory.Memory) { m.Agent = "a b" },
		"kind is":          func(m *memory.Memory) { m.Kind = "thought" },
		"text has 0":       func(m *memory.Memory) { m.Text = "" },
		"text has 16385":   func(m *memory.Memory) { m.Text = strings.Repeat("x", memory.MaxText+1) },
		"text is not UTF":  func(m *memory.Memory) { m.Text = "\xff" },
		"source.origin is": func(m *memory.Memory) { m.Source.Origin = "" },
	} {
		m := good
		change(&m)
		if err := m.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestOnlyWordsOfPeopleAreTrusted(t *testing.T) {
	for _, o := range memory.Origins() {
		if o.Trusted() != (o == memory.FromPerson) {
			t.Errorf("%s: trusted is %t", o, o.Trusted())
		}
	}
}
