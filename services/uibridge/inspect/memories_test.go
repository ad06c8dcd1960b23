package inspect_test

import (
	"slices"
	"testing"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// A person's words become a memory of the agent, which is found, corrected and forgotten.
func TestMemoriesAreChangedByPeople(t *testing.T) {
	w := newWorld(t)
	type about map[string]any
	tea := call[memory.Memory](w, "addMemory", about{"agent": "main", "text": "Ann likes green tea.", "id": "tea"})
	if tea.ID != "tea" || tea.Kind != memory.Fact || tea.Source.Origin != memory.FromPerson ||
		tea.Source.Principal != ada.Writer || tea.Pinned {
		t.Errorf("it remembers %+v", tea)
	}
	again := call[memory.Memory](w, "addMemory", about{"agent": "main", "text": "Ann likes green tea.", "id": "tea"})
	if !again.Created.Equal(tea.Created) {
		t.Errorf("sent again, it remembers %+v", again)
	}
	hits := call[inspect.MemoryHits](w, "searchMemories",
		about{"agent": "main", "text": "tea", "kinds": []string{"fact"}}).Hits
	if len(hits) != 1 || hits[0].ID != "tea" {
		t.Errorf("found %+v", hits)
	}
	black := call[memory.Memory](w, "correctMemory", about{"agent": "main", "id": "tea", "text": "Ann likes black tea."})
	pinned := call[memory.Memory](w, "correctMemory", about{"agent": "main", "id": "tea", "pinned": true})
	if black.Text != "Ann likes black tea." || pinned.Text != black.Text || !pinned.Pinned {
		t.Errorf("corrected %+v, pinned %+v", black, pinned)
	}
	if page := call[inspect.MemoriesPage](w, "listMemories", about{"agent": "other"}); len(page.Memories) != 0 {
		t.Errorf("another agent remembers %+v", page)
	}
	call[inspect.Forgotten](w, "forgetMemory", about{"agent": "main", "id": "tea"})
	if page := call[inspect.MemoriesPage](w, "listMemories", about{"agent": "main"}); len(page.Memories) != 0 {
		t.Errorf("what is forgotten is there: %+v", page)
	}
}

// To see what an agent remembers needs the right to see; to change it, which answers with the
// memory, the right to talk, too; all with that agent.
func TestWhoMaySeeAndChangeMemories(t *testing.T) {
	w := newWorld(t)
	methods := map[string]map[string]any{
		"listMemories": {}, "searchMemories": {"text": "tea"}, "addMemory": {"text": "tea"},
		"correctMemory": {"id": "m-1", "text": "tea"}, "forgetMemory": {"id": "m-1"},
	}
	looks := []string{"listMemories", "searchMemories"}
	for _, c := range []struct {
		rights []contract.Right
		may    []string
	}{
		{[]contract.Right{contract.See}, looks},
		{[]contract.Right{contract.See, contract.Talk}, append(looks, "addMemory", "correctMemory", "forgetMemory")},
		{[]contract.Right{contract.Talk, contract.Approve, contract.Administer}, nil},
	} {
		bob := contract.Principal{Name: "bob", Writer: "ui-bob", Rights: c.rights, Agents: []subject.Agent{"main"}}
		for method, params := range methods {
			params["agent"] = "main"
			if got := w.refused(bob, method, params); (got != "forbidden") != slices.Contains(c.may, method) {
				t.Errorf("%s with the rights %s: %s", method, c.rights, got)
			}
			params["agent"] = "secret"
			if got := w.refused(bob, method, params); got != "forbidden" {
				t.Errorf("%s of a hidden agent with the rights %s: %s", method, c.rights, got)
			}
		}
	}
}
