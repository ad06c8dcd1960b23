package contract

import (
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
)

// The manifest's schema refuses the groups that registration refuses.
func TestTheManifestNamesTheReservedGroups(t *testing.T) {
	items, ok := files(t).node(t, "manifest.v1").child("properties", "tools", "items", "properties", "name", "not")
	if !ok {
		t.Fatal("the schema refuses no group")
	}
	pattern, _ := items.m["pattern"].(string)
	groups := strings.Split(strings.TrimSuffix(strings.TrimPrefix(pattern, "^("), "):"), "|")
	if !slices.Equal(groups, tool.ReservedGroups()) {
		t.Errorf("the schema refuses\n%q, registration\n%q", groups, tool.ReservedGroups())
	}
}
