package plugin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	sdk "skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/lexical"
	index "skandha.dev/services/internal/memory"
)

// The records that are no memories.
const (
	keeper      = subject.Agent("skandha")
	positionKey = "position"
)

func keyOf(id string) string { return "m-" + digest(id) }

func modelKey(model string) string { return "model-" + digest(model) }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// orderOf returns a string that is compared byte by byte as the position is.
func orderOf(c index.Cursor) string {
	return sortable(uint64(math.MaxInt64-c.Micros)) + hex.EncodeToString([]byte(c.ID))
}

func sortable(n uint64) string { return fmt.Sprintf("%016x", n) }

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

const none = "-"

// version is what the version of a memory's record says.
type version struct {
	revision uint64
	removed  bool
	text     string // digest
	model    string // digest; "" without a vector
}

func (v version) String() string {
	text, model := v.text, v.model
	if v.removed {
		text = none
	}
	if model == "" {
		model = none
	}
	return strings.Join([]string{sortable(v.revision), text, model, random()}, ".")
}

// parseVersion is the inverse of String; "" is the zero version.
func parseVersion(s string) (v version, err error) {
	if s == "" {
		return v, nil
	}
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return v, wrongVersion(s)
	}
	if v.revision, err = strconv.ParseUint(parts[0], 16, 64); err != nil || v.revision == 0 || v.revision > index.MaxRevision {
		return v, wrongVersion(s)
	}
	v.text, v.model, v.removed = parts[1], parts[2], parts[1] == none
	if v.model == none {
		v.model = ""
	}
	return v, nil
}

func wrongVersion(s string) error {
	return fmt.Errorf("it returned the version %.80q, which it never got", s)
}

// change is an entry to be stored, or a memory to be removed.
type change struct {
	index.Entry

	removed bool
	expect  string // the version that is stored
}

// record returns what is written, with the vector of the entry.
func (c change) record() (sdk.Record, error) {
	v := version{revision: c.Revision, removed: c.removed, text: digest(c.Text)}
	if c.Vector != nil {
		v.model = digest(c.Model)
	}
	r := sdk.Record{Agent: c.Agent, Key: keyOf(c.ID), Expect: c.expect, Version: v.String()}
	if c.removed {
		return r, nil
	}
	value, err := json.Marshal(c.Memory)
	r.Value, r.Kind, r.Model, r.Vector = value, string(c.Kind), c.Model, c.Vector
	r.Order, r.Revision = orderOf(index.CursorOf(c.Memory)), sortable(c.Revision)
	r.Words = strings.Join(lexical.Terms(c.Text), " ")
	return r, err
}

// size bounds the record's size as JSON.
func size(r sdk.Record) int {
	const fixed, number = 1 << 10, 16
	return fixed + len(r.Order) + len(r.Words) + len(r.Model)*6 + len(r.Value) + number*len(r.Vector)
}

// entryOf checks a record that the plugin returned for a memory of an agent ("": any), and
// returns the entry without its vector. A removal is ErrNotFound.
func entryOf(r sdk.Record, agent subject.Agent) (e index.Entry, err error) {
	if agent != "" && r.Agent != agent {
		return e, fmt.Errorf("it returned a record of agent %.80q, asked about agent %s", r.Agent, agent)
	}
	v, err := parseVersion(r.Version)
	if err == nil && r.Version == "" {
		err = wrongVersion("")
	}
	if err != nil {
		return e, err
	}
	if v.removed {
		return e, index.ErrNotFound
	}
	if err := json.Unmarshal(r.Value, &e.Memory); err != nil {
		return e, fmt.Errorf("the value of its record %.80q of agent %.80q is not a memory: %w", r.Key, r.Agent, err)
	}
	if err := e.Check(); err != nil {
		return e, fmt.Errorf("the value of its record %.80q of agent %.80q is not a memory: %w", r.Key, r.Agent, err)
	}
	if e.Agent != r.Agent || keyOf(e.ID) != r.Key || digest(e.Text) != v.text {
		return e, fmt.Errorf("its record %.80q of agent %.80q has the value of another one", r.Key, r.Agent)
	}
	e.Revision = v.revision
	return e, nil
}

// vectorOf checks the vector of a record, and adds it to the record's entry.
func vectorOf(r sdk.Record, e index.Entry) (index.Entry, error) {
	v, err := parseVersion(r.Version)
	if err != nil || v.model == "" {
		return e, err
	}
	if digest(r.Model) != v.model || len(r.Vector) == 0 {
		return e, fmt.Errorf("its record %.80q of agent %.80q lacks its vector", r.Key, r.Agent)
	}
	e.Model, e.Vector = r.Model, r.Vector
	if _, err := index.Prepare([]index.Entry{e}); err != nil {
		return e, errors.New("the vector of a record is damaged: " + err.Error())
	}
	return e, nil
}
