package contract

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/rights"
)

// rightsFile is schemas/rights.yaml.
type rightsFile struct {
	Version  int
	Internal map[string]string
	Groups   map[string][]string
	Services map[string]rights.Part
	Charter  map[string]rights.Part
}

func readRights(t *testing.T) *rights.Declaration {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, "schemas/rights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var f rightsFile
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	d := &rights.Declaration{Channels: f.Internal, Groups: f.Groups, Services: f.Services, Charter: f.Charter}
	for name, ch := range channels() {
		if ch.Address != "" {
			d.Channels[name] = ch.Address
		}
	}
	return d
}

// What the services are built with is what the schemas declare.
func TestTheRightsAreCurrent(t *testing.T) {
	d := readRights(t)
	for _, typ := range event.CommitTypes() {
		if name := liveChannel(typ); !slices.Contains(d.Groups["live"], name) {
			t.Errorf("schemas/rights.yaml: the group live lacks %s", name)
		}
	}
	want, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	path := filepath.Join(top, "services/internal/rights/declaration.json")
	if *updateReference {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, want) {
		t.Errorf("%s is out of date (%v): go test ./test/contract -run TestTheRightsAreCurrent -update", path, err)
	}
}
