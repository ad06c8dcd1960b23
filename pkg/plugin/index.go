package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// IndexVerb is an operation of an index.
type IndexVerb string

// The verbs. A plugin that serves an index serves all of them: see [StorageIndex].
const (
	Write   IndexVerb = "write"   // store records, each on a condition
	Read    IndexVerb = "read"    // return records by their names
	List    IndexVerb = "list"    // return an agent's records by their order
	Pending IndexVerb = "pending" // return records of all agents without a vector of a model
	Rank    IndexVerb = "rank"    // return an agent's records that match best
	Wipe    IndexVerb = "wipe"    // delete a collection
)

// IndexVerbs returns the verbs of an index.
func IndexVerbs() []IndexVerb { return []IndexVerb{Write, Read, List, Pending, Rank, Wipe} }

// Record is one entry of an index. Agent and Key name it within its collection. The caller
// chooses all fields except Score; a plugin stores them and does not interpret them. The
// strings of Key, Version, Order and Revision consist of the characters 0-9, a-z, - and .
type Record struct {
	Agent   subject.Agent `json:"agent"` // agents whose names differ in case alone are different
	Key     string        `json:"key"`
	Expect  string        `json:"expect,omitempty"` // write: the stored version, "" if there is no such record
	Version string        `json:"version,omitempty"`

	// A record without Order is returned by read alone.
	Order    string `json:"order,omitempty"`    // list returns records by it, byte by byte
	Revision string `json:"revision,omitempty"` // pending returns records by it, byte by byte
	Kind     string `json:"kind,omitempty"`

	Words  string          `json:"words,omitempty"` // separated by one space, with repetitions
	Model  string          `json:"model,omitempty"` // that computed Vector
	Vector []float32       `json:"vector,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"` // any JSON value

	Score float64 `json:"score,omitempty"` // rank: higher is better
}

// IndexRequest is the request to an index on storage.<plugin>.<verb>.
type IndexRequest struct {
	Verb       IndexVerb     `json:"verb"`              // as in the subject
	Collection string        `json:"collection"`        // an id: a set of records
	Records    []Record      `json:"records,omitempty"` // write; read: agents and keys
	Agent      subject.Agent `json:"agent,omitempty"`   // list, rank
	Kinds      []string      `json:"kinds,omitempty"`   // list, rank: only records of these kinds; none: of all
	After      string        `json:"after,omitempty"`   // list: only records of a greater order; pending: of a greater revision
	Limit      int           `json:"limit,omitempty"`   // list, pending, rank: maximum number of records
	Without    string        `json:"without,omitempty"` // pending, rank: only records without a vector of this model
	Words      string        `json:"words,omitempty"`   // rank by words: separated by one space, each once
	Model      string        `json:"model,omitempty"`   // rank by vector: only records with one of this model
	Vector     []float32     `json:"vector,omitempty"`  // rank by vector
}

// IndexReply is the reply to an IndexRequest; empty for wipe.
type IndexReply struct {
	Records []Record `json:"records,omitempty"`
}

// StorageIndex is a store that keeps an index, such as that of memories. It only stores and
// compares: it never interprets a record. All methods may be called concurrently. The plugin
// may return records as they were written; fields that a verb does not return are not sent.
//
// Whatever loses a record loses its whole collection: a plugin that finds that it has lost
// some deletes the rest, as Wipe does. The caller then writes everything again.
type StorageIndex interface {
	// Write stores records. A record is stored, in place of the earlier one, if the stored
	// version is the one that it expects. All others are returned with the version that is
	// stored. Each record is stored in one step; the records need not be stored together.
	Write(ctx context.Context, collection string, records []Record) (conflicts []Record, err error)

	// Read returns those of the named records that exist, in any order, with Version, Value,
	// Model and Vector.
	Read(ctx context.Context, collection string, names []Record) ([]Record, error)

	// List returns the agent's records of some kinds by their order, with Version and Value.
	// Fewer than limit are the last ones. Only Read returns records without Order.
	List(ctx context.Context, r IndexRequest) ([]Record, error)

	// Pending returns records of all agents by their revision, with Version and Value: those
	// that have no vector of the model r.Without. Fewer than limit are the last ones.
	Pending(ctx context.Context, r IndexRequest) ([]Record, error)

	// Rank returns the agent's records that match best, with Version, Value and Score.
	//
	// With r.Vector, the score is the cosine of the angle to it (all vectors have length 1).
	// Only records with a vector of the model and the dimension are returned.
	//
	// With r.Words, the score is greater the more of the words a record has, and the rarer
	// they are among the agent's records, as with BM25. Only records that have at least one
	// of them, and no vector of the model r.Without, are returned. Words are compared byte by
	// byte: they are folded and stemmed already.
	//
	// Among equal scores, the records with the smallest order are returned.
	Rank(ctx context.Context, r IndexRequest) ([]Record, error)

	// Wipe deletes all records of the collection. It is not an error if there are none.
	Wipe(ctx context.Context, collection string) error
}

// The limits of an index request, as in schemas/storage/index_request.json.
const (
	maxLabel   = 512 // bytes of a string that the caller chooses
	maxRecords = 1000
	maxVector  = 8192
)

// bindIndex answers requests of one verb.
func bindIndex(r *runtime, x StorageIndex, verb IndexVerb) answerFunc {
	return func(ctx context.Context, body []byte, _ func()) ([]byte, error) {
		var q IndexRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument,
				"the request is not an index request (schemas/storage/index_request.json): %v", err)
		}
		if err := q.check(verb); err != nil {
			return nil, err
		}
		found, err := contain(r, "storage "+string(verb), func() ([]Record, error) { return serveIndex(ctx, x, q) })
		if err != nil {
			return nil, err
		}
		return encode(IndexReply{Records: each(found, q.sent)})
	}
}

func serveIndex(ctx context.Context, x StorageIndex, q IndexRequest) ([]Record, error) {
	switch q.Verb {
	case Write:
		return x.Write(ctx, q.Collection, q.Records)
	case Read:
		return x.Read(ctx, q.Collection, q.Records)
	case List:
		return x.List(ctx, q)
	case Pending:
		return x.Pending(ctx, q)
	case Rank:
		return x.Rank(ctx, q)
	case Wipe:
		return nil, x.Wipe(ctx, q.Collection)
	}
	return nil, fmt.Errorf("%q is no verb of an index", q.Verb)
}

// sent returns the fields of a record that the reply to q has.
func (q IndexRequest) sent(r Record) Record {
	out := Record{Agent: r.Agent, Key: r.Key, Version: r.Version}
	if q.Verb != Write {
		out.Value = r.Value
	}
	switch q.Verb {
	case Read:
		out.Model, out.Vector = r.Model, r.Vector
	case Rank:
		out.Score = r.Score
	case Write, List, Pending, Wipe:
	}
	return out
}

// check validates a request as the schema does; the error names the field.
func (q IndexRequest) check(verb IndexVerb) error {
	var wrong string
	named, paged := verb == Write || verb == Read, verb == List || verb == Pending || verb == Rank
	switch {
	case q.Verb != verb:
		wrong = fmt.Sprintf("verb is %q, but the subject has %q", clip(string(q.Verb)), verb)
	case !subject.Valid(q.Collection):
		wrong = fmt.Sprintf("collection %q is not a valid id", clip(q.Collection))
	case named && (len(q.Records) == 0 || len(q.Records) > maxRecords):
		wrong = fmt.Sprintf("records has %d, want 1 to %d", len(q.Records), maxRecords)
	case (verb == List || verb == Rank) && !subject.Valid(q.Agent):
		wrong = fmt.Sprintf("agent %q is not a valid id", clip(string(q.Agent)))
	case paged && (q.Limit < 1 || q.Limit > maxRecords):
		wrong = fmt.Sprintf("limit is %d, want 1 to %d", q.Limit, maxRecords)
	case verb == Pending && q.Without == "":
		wrong = "without is missing"
	case verb == Rank && (q.Words == "") == (q.Vector == nil):
		wrong = "rank needs either words or vector"
	case verb == Rank && (q.Model == "") != (q.Vector == nil):
		wrong = "model and vector belong together"
	}
	for i, r := range q.Records {
		if w := r.wrong(verb); w != "" && wrong == "" {
			wrong = fmt.Sprintf("records[%d]: %s", i, w)
		}
	}
	if wrong == "" {
		return nil
	}
	return bus.Errorf(bus.CodeInvalidArgument, "%s", wrong)
}

func (r Record) wrong(verb IndexVerb) string {
	switch {
	case !subject.Valid(r.Agent):
		return fmt.Sprintf("agent %q is not a valid id", clip(string(r.Agent)))
	case r.Key == "" || len(r.Key) > maxLabel:
		return fmt.Sprintf("key has %d bytes, want 1 to %d", len(r.Key), maxLabel)
	case verb == Write && (r.Version == "" || len(r.Version) > maxLabel):
		return fmt.Sprintf("version has %d bytes, want 1 to %d", len(r.Version), maxLabel)
	case (r.Model == "") != (r.Vector == nil):
		return "model and vector belong together"
	case len(r.Vector) > maxVector:
		return fmt.Sprintf("vector has %d numbers, want at most %d", len(r.Vector), maxVector)
	}
	return ""
}
