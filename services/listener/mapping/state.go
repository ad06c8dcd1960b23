package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"skandha.dev/services/internal/text"
)

// maxSeen is how many readings a name remembers as taken.
const maxSeen = 128

// state is what a rule remembers about a name.
type state struct {
	Name    string    `json:"name"`
	Inputs  uint64    `json:"inputs"`            // so far
	Fired   bool      `json:"fired,omitempty"`   // the value has not come back since the last input
	Last    *string   `json:"last,omitempty"`    // value of the last input
	At      time.Time `json:"at,omitzero"`       // of the last input
	Pending *pending  `json:"pending,omitempty"` // what must hold for a time
	Window  *window   `json:"window,omitempty"`  // what is summarised
	Seen    []string  `json:"seen,omitempty"`    // ids of the latest readings that changed this

	limited bool // the pending value was counted as dropped
}

// pending is a value that must hold for a time.
type pending struct {
	Since time.Time `json:"since"`
	Data  []byte    `json:"data"`
	ID    string    `json:"id,omitempty"`
}

// window is the summary of readings.
type window struct {
	Since time.Time `json:"since"`
	Count int64     `json:"count"`
	Min   float64   `json:"min"`
	Max   float64   `json:"max"`
	Mean  float64   `json:"mean"`
	First float64   `json:"first"`
	Last  float64   `json:"last"`
}

func (w *window) add(n float64) {
	if w.Count == 0 {
		w.Min, w.Max, w.First = n, n, n
	}
	w.Count++
	w.Min, w.Max, w.Last = min(w.Min, n), max(w.Max, n), n
	w.Mean += n/float64(w.Count) - w.Mean/float64(w.Count) // the difference itself might overflow
}

// maxKept bounds a value that is kept to be compared, in bytes.
const maxKept = 1 << 10

// kept is the form in which a value is kept and compared.
func kept(v string) string {
	if len(v) <= maxKept {
		return v
	}
	sum := sha256.Sum256([]byte(v))
	return text.Cut(v, maxKept) + " " + hex.EncodeToString(sum[:8])
}

func (s *state) remember(v value) {
	k := kept(v.text)
	s.Last = &k
}

func (s *state) see(id string) {
	if id == "" {
		return
	}
	if len(s.Seen) >= maxSeen {
		s.Seen = slices.Delete(s.Seen, 0, len(s.Seen)-maxSeen+1)
	}
	s.Seen = append(s.Seen, id)
}

// inputID names the next input of a name, which a reading (or the beginning of a window)
// causes.
func (m *Mapper) inputID(s *state, cause string) string {
	sum := sha256.Sum256([]byte(s.Name + "\x00" + cause))
	return m.rule + "/" + strconv.FormatUint(s.Inputs, 10) + "-" + hex.EncodeToString(sum[:8])
}

// cause is what distinguishes a reading in the id of its input.
func cause(id string, at time.Time) string {
	if id != "" {
		return id
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// Load restores the state of a name, as [Mapper.Changed] has returned it.
func (m *Mapper) Load(stored []byte) error {
	var s state
	if err := json.Unmarshal(stored, &s); err != nil {
		return fmt.Errorf("state of rule %s: %w", m.rule, err)
	}
	m.states[s.Name] = &s
	return nil
}

// Reset forgets everything, before [Mapper.Load].
func (m *Mapper) Reset() {
	clear(m.states)
	clear(m.changed)
}

// Changed returns the states that have changed since the last call, by name, to be stored.
func (m *Mapper) Changed() map[string][]byte {
	out := make(map[string][]byte, len(m.changed))
	for name := range m.changed {
		b, err := json.Marshal(m.states[name])
		if err != nil {
			panic("mapping: a state is not JSON: " + err.Error()) // its numbers are finite
		}
		out[name] = b
	}
	clear(m.changed)
	return out
}
