package memory

import (
	"fmt"
	"math"
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/store"
)

// Limits, the same for every implementation.
const (
	MaxRevision  = store.MaxRev
	MaxDimension = 8192 // numbers of a vector
	maxModel     = 256  // bytes

	DefaultPage = store.DefaultPage
	MaxPage     = store.MaxPage
	DefaultHits = 10
	MaxHits     = 100
)

// Prepare checks the entries and returns them with vectors of length 1. The error is
// ErrInvalid and names the memory.
func Prepare(entries []Entry) ([]Entry, error) {
	out := make([]Entry, len(entries))
	for i, e := range entries {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%w: memory %.140q of agent %.80q: %w", ErrInvalid, e.ID, e.Agent, err)
		}
		v, err := unit(e.Model, e.Vector)
		if err != nil {
			return nil, fmt.Errorf("%w: memory %.140q of agent %s: %w", ErrInvalid, e.ID, e.Agent, err)
		}
		out[i], out[i].Vector = e, v
	}
	return out, nil
}

func (e Entry) check() error {
	if err := e.Memory.Check(); err != nil {
		return err
	}
	if err := checkRevision(e.Revision); err != nil {
		return err
	}
	if !store.ValidTime(e.Created) {
		return fmt.Errorf("created is %v, want a time from 1970 to 2255", e.Created)
	}
	return nil
}

func checkRevision(revision uint64) error {
	if revision == 0 || revision > MaxRevision {
		return fmt.Errorf("revision is %d, want 1 to %d", revision, MaxRevision)
	}
	return nil
}

// unit returns the vector with length 1.
func unit(model string, v []float32) ([]float32, error) {
	switch {
	case v == nil && model == "":
		return nil, nil
	case v == nil:
		return nil, fmt.Errorf("model is %.80q, but there is no vector", model)
	case model == "" || len(model) > maxModel:
		return nil, fmt.Errorf("model has %d bytes, want 1 to %d", len(model), maxModel)
	case len(v) == 0 || len(v) > MaxDimension:
		return nil, fmt.Errorf("vector has %d dimensions, want 1 to %d", len(v), MaxDimension)
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil, fmt.Errorf("vector has length %v, want a positive number", math.Sqrt(sum))
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(float64(x) / math.Sqrt(sum))
	}
	return out, nil
}

// Prepare checks the query and returns it with a limit and a vector of length 1. The error
// is ErrInvalid.
func (q Query) Prepare() (Query, error) {
	if err := checkAgent(q.Agent); err != nil {
		return q, err
	}
	if err := checkKinds(q.Kinds); err != nil {
		return q, err
	}
	if q.Text == "" && q.Vector == nil {
		return q, fmt.Errorf("%w: query has neither text nor vector", ErrInvalid)
	}
	v, err := unit(q.Model, q.Vector)
	if err != nil {
		return q, fmt.Errorf("%w: query: %w", ErrInvalid, err)
	}
	q.Vector = v
	if q.Limit <= 0 {
		q.Limit = DefaultHits
	}
	q.Limit = min(q.Limit, MaxHits)
	return q, nil
}

// Includes reports whether memories of the kind may match.
func (q Query) Includes(kind memory.Kind) bool {
	return len(q.Kinds) == 0 || slices.Contains(q.Kinds, kind)
}

// Check reports why k names no memory, as ErrInvalid.
func (k Key) Check() error {
	if err := checkAgent(k.Agent); err != nil {
		return err
	}
	// A memory of that name is wrong only if the name is.
	named := memory.Memory{
		ID: k.ID, Agent: k.Agent, Kind: memory.Fact, Text: "x", Source: memory.Source{Origin: memory.FromPerson},
	}
	if err := named.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// CheckRemoval checks the arguments of Remove.
func CheckRemoval(key Key, revision uint64) error {
	if err := key.Check(); err != nil {
		return err
	}
	if err := checkRevision(revision); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// CheckPosition checks the argument of SetPosition.
func CheckPosition(revision uint64) error {
	if revision > MaxRevision {
		return fmt.Errorf("%w: position is %d, want at most %d", ErrInvalid, revision, MaxRevision)
	}
	return nil
}

// CheckModel checks the model of Unembedded.
func CheckModel(model string) error {
	if model == "" || len(model) > maxModel {
		return fmt.Errorf("%w: model has %d bytes, want 1 to %d", ErrInvalid, len(model), maxModel)
	}
	return nil
}

// Page checks the arguments of List and returns the position after which the page begins.
func Page(agent subject.Agent, kinds []memory.Kind, after string) (Cursor, error) {
	if err := checkAgent(agent); err != nil {
		return Cursor{}, err
	}
	if err := checkKinds(kinds); err != nil {
		return Cursor{}, err
	}
	return parseCursor(after)
}

func checkAgent(agent subject.Agent) error {
	if !subject.Valid(agent) {
		return fmt.Errorf("%w: agent is %.80q, want an id of 1 to 64 letters, digits, _ or -", ErrInvalid, agent)
	}
	return nil
}

func checkKinds(kinds []memory.Kind) error {
	for _, k := range kinds {
		if !slices.Contains(memory.Kinds(), k) {
			return fmt.Errorf("%w: kind is %.40q, want one of %v", ErrInvalid, k, memory.Kinds())
		}
	}
	return nil
}

// WrongDimension is the error for a vector whose dimension is not that of the others of its
// model.
func WrongDimension(model string, got, want int) error {
	return fmt.Errorf("%w: vector has %d dimensions, but the stored ones of model %s have %d; "+
		"name the model differently or rebuild the index", ErrInvalid, got, model, want)
}

// PageSize returns the number of entries to return for a limit.
func PageSize(limit int) int { return store.PageSize(limit) }
