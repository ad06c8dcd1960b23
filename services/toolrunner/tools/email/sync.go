package email

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/toolrunner/tools"
)

// The bounds of a sync.
const (
	maxChanges   = 200  // of each kind
	maxWatched   = 5000 // letters whose disappearance is noticed
	maxSpans     = 120  // of the watched letters' UIDs
	maxStateSize = 8 << 10
)

type syncArgs struct {
	Account string `json:"account"`
	Folder  string `json:"folder"`
	State   string `json:"state"`
}

// changes is what has changed in a folder.
type changes struct {
	State   string    `json:"state"` // for the next call
	New     []summary `json:"new,omitempty"`
	Flags   []flagged `json:"flags,omitempty"`
	Gone    []uint32  `json:"gone,omitempty"` // UIDs of letters that were moved or deleted
	More    bool      `json:"more,omitempty"`
	Invalid string    `json:"invalid,omitempty"` // why the state that was given is of no use
	Notes   []string  `json:"notes,omitempty"`
}

type flagged struct {
	UID   uint32   `json:"uid"`
	Flags []string `json:"flags"`
}

// snapshot is what a state token contains.
type snapshot struct {
	Account  string      `json:"a"`
	Folder   string      `json:"f"`
	Validity uint32      `json:"v"`
	Last     uint32      `json:"l"` // the highest UID that was reported
	ModSeq   uint64      `json:"m,omitempty"`
	Spans    [][2]uint32 `json:"s,omitempty"` // the UIDs that existed, first and last of each span
}

func (g *Group) sync() tools.Tool {
	return tools.New(tool.Spec{
		Name: "email:sync",
		Description: "Reports what has changed in a mail folder since an earlier call: new e-mails, changed flags, and e-mails that are " +
			"gone (moved or deleted). Pass the state that the earlier call returned. Without a state, it returns one for now, and no changes.",
		Args: json.RawMessage(`{"type":"object","properties":{` + g.which() + `,` + whichFolder + `,
			"state":{"type":"string","maxLength":` + fmt.Sprint(maxStateSize) + `}},"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{permissionRead, permissionNetwork},
		ScenarioTags: []string{"information_retrieval", "communication"}, TimeoutMS: readTimeout.Milliseconds(),
	}, func(ctx context.Context, _ tools.Call, args syncArgs) tool.Result {
		out, err := g.changes(ctx, args)
		if err != nil {
			return failure("comparing a mail folder", err)
		}
		return tool.OK(out)
	})
}

func (g *Group) changes(ctx context.Context, args syncArgs) (out changes, err error) {
	a, b, s, err := g.open(ctx, args.Account, args.Folder)
	if err != nil {
		return changes{}, err
	}
	defer b.Close()
	uids, err := b.Search(mailstore.Query{})
	if err != nil {
		return changes{}, err
	}
	now := snapshot{Account: a.ID, Folder: args.Folder, Validity: s.UIDValidity, ModSeq: s.ModSeq}
	if len(uids) > 0 {
		now.Last = uids[len(uids)-1]
	}
	if args.State != "" {
		was, err := decode(args.State)
		switch {
		case err != nil:
			return changes{}, err
		case was.Account != now.Account || was.Folder != now.Folder:
			return changes{}, fmt.Errorf("the state belongs to the folder %q of the account %q", was.Folder, was.Account)
		case was.Validity != now.Validity:
			out.Invalid = "the server has numbered the e-mails anew (UIDVALIDITY), so the state and all earlier UIDs are invalid; " +
				"search the folder again, and continue with the new state"
		default:
			if err := out.compare(b, was, &now, uids); err != nil {
				return changes{}, err
			}
		}
	}
	now.watch(uids)
	out.State = now.encode()
	return out, nil
}

// compare collects the changes since an earlier state.
func (c *changes) compare(b *mailstore.Store, was snapshot, now *snapshot, uids []uint32) (err error) {
	first, _ := slices.BinarySearch(uids, was.Last+1)
	arrived := uids[first:]
	if len(arrived) > maxChanges {
		arrived, c.More = arrived[:maxChanges], true
		now.Last = arrived[len(arrived)-1]
	} else {
		now.Last = max(now.Last, was.Last)
	}
	if c.New, err = summaries(b, arrived); err != nil {
		return err
	}
	for _, span := range was.Spans {
		for uid := span[0]; uid >= span[0] && uid <= span[1]; uid++ {
			if _, exists := slices.BinarySearch(uids, uid); !exists {
				c.Gone = append(c.Gone, uid)
			}
		}
	}
	if n := len(c.Gone); n > maxChanges {
		c.Gone = c.Gone[n-maxChanges:]
		c.Notes = append(c.Notes, fmt.Sprintf("%d e-mails are gone; only the latest %d are listed", n, maxChanges))
	}
	if was.ModSeq == 0 || now.ModSeq == 0 {
		c.Notes = append(c.Notes, "the server does not report changed flags (CONDSTORE)")
		return nil
	}
	return c.flags(b, was)
}

func (c *changes) flags(b *mailstore.Store, was snapshot) error {
	changed, err := b.FlagsSince(was.ModSeq)
	if err != nil {
		return err
	}
	for _, uid := range slices.Sorted(maps.Keys(changed)) {
		if uid <= was.Last { // of new ones, New has the flags
			c.Flags = append(c.Flags, flagged{uid, changed[uid]})
		}
	}
	if n := len(c.Flags); n > maxChanges {
		c.Flags = c.Flags[n-maxChanges:]
		c.Notes = append(c.Notes, fmt.Sprintf("the flags of %d e-mails have changed; only the latest %d are listed", n, maxChanges))
	}
	return nil
}

// watch records the latest letters up to Last, so that it is noticed when they disappear.
func (s *snapshot) watch(uids []uint32) {
	end, ok := slices.BinarySearch(uids, s.Last)
	if ok {
		end++
	}
	uids = uids[max(0, end-maxWatched):end]
	for i := len(uids) - 1; i >= 0; i-- {
		if n := len(s.Spans); n > 0 && s.Spans[n-1][0] == uids[i]+1 {
			s.Spans[n-1][0] = uids[i]
		} else if n == maxSpans {
			break
		} else {
			s.Spans = append(s.Spans, [2]uint32{uids[i], uids[i]})
		}
	}
	slices.Reverse(s.Spans)
}

func (s *snapshot) encode() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen: it consists of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decode(state string) (s snapshot, err error) {
	b, err := base64.RawURLEncoding.DecodeString(state)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	watched := 0
	for _, span := range s.Spans {
		if span[1] < span[0] || span[1]-span[0] >= maxWatched {
			err = errors.New("a span is invalid")
			break
		}
		watched += int(span[1]-span[0]) + 1
	}
	if err != nil || watched > maxWatched {
		return snapshot{}, errors.New("the state is not one that email:sync returned; leave it out to begin anew")
	}
	return s, nil
}
