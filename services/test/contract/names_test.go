package contract

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/tool"
)

// Readers of JSON differ in which of two equal names they use, and none reports them.
func TestNoObjectHasANameTwice(t *testing.T) {
	read := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == "examples/invalid":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".json":
			return nil
		}
		body, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		read++
		if err := unique(body); err != nil {
			t.Errorf("schemas/%s: %v", path, err)
		}
		return nil
	})
	if err != nil || read == 0 {
		t.Fatalf("%d files were read: %v", read, err)
	}
	err = unique([]byte(`{"a":[{"b":1,"c":{"d":1,"d":1}}]}`))
	if err == nil || err.Error() != `a: 0: c: duplicate field "d"` {
		t.Errorf("the check reports %v", err)
	}
}

// unique returns an error if an object in the value has a name twice.
func unique(value json.RawMessage) error {
	var object map[string]json.RawMessage
	if err := strictjson.Names(value, &object); err != nil {
		return err
	}
	var list []json.RawMessage
	switch {
	case json.Unmarshal(value, &object) == nil:
	case json.Unmarshal(value, &list) == nil:
		object = map[string]json.RawMessage{}
		for i, v := range list {
			object[fmt.Sprint(i)] = v
		}
	}
	for name, v := range object {
		if err := unique(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

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
