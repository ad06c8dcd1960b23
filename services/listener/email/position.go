package email

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail/mailstore"
)

// maxRecent is how many letters are recognised after the server has numbered them anew.
const maxRecent = 200

// dateSlack is how far the days of two servers may differ.
const dateSlack = 24 * time.Hour

// position is how far a listener has read a folder.
type position struct {
	Account     string    `json:"account"`
	Folder      string    `json:"folder"`
	UIDValidity uint32    `json:"uid_validity"`
	UID         uint32    `json:"uid"`              // of the last letter that was handled
	Last        time.Time `json:"last,omitzero"`    // when that one arrived
	Since       time.Time `json:"since,omitzero"`   // older letters were handled under other UIDs
	Recent      []string  `json:"recent,omitempty"` // digests of the last Message-IDs

	revision uint64
}

// handled records a letter.
func (p *position) handled(uid uint32, received time.Time, messageID string) {
	p.UID = uid
	if received.After(p.Last) {
		p.Last = received
	}
	if messageID == "" {
		return
	}
	p.Recent = append(p.Recent, digest(messageID))
	if n := len(p.Recent); n > maxRecent {
		p.Recent = slices.Clone(p.Recent[n-maxRecent:])
	}
}

// repeated reports whether a letter was handled under another UID, before the server numbered
// its letters anew.
func (p *position) repeated(received time.Time, messageID string) bool {
	return !p.Since.IsZero() && (received.Before(p.Since) || messageID != "" && slices.Contains(p.Recent, digest(messageID)))
}

func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// load reads the position in the bucket; false if there is none.
func (l *Listener) load(ctx context.Context) (position, bool, error) {
	e, err := l.bucket.Get(ctx, string(l.name))
	if errors.Is(err, bus.ErrNotFound) {
		return position{}, false, nil
	}
	if err != nil {
		return position{}, false, err
	}
	p := position{}
	if err := json.Unmarshal(e.Value, &p); err != nil {
		return position{}, false, fmt.Errorf("reading the position of the listener: %w; delete the key %s of the bucket %s", err,
			l.name, journal.BucketEmail)
	}
	p.revision = e.Revision
	return p, true, nil
}

// save records the position. It fails if another replica has recorded one.
func (l *Listener) save(ctx context.Context, p *position) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	revision, err := l.bucket.Put(ctx, string(l.name), b, journal.Fence{Revision: p.revision})
	if err != nil {
		return fmt.Errorf("recording the position: %w", err)
	}
	p.revision = revision
	return nil
}

// position returns how far the open folder was read, and records where reading begins.
func (l *Listener) position(ctx context.Context, b *mailstore.Store, s mailstore.State) (*position, error) {
	p, known, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	same := known && p.Account == l.account.Address && p.Folder == l.cfg.Folder
	switch {
	case same && p.UIDValidity == s.UIDValidity:
		return &p, nil
	case same:
		err = l.renumbered(b, s, &p)
	default:
		p = position{Account: l.account.Address, Folder: l.cfg.Folder, UIDValidity: s.UIDValidity, revision: p.revision}
		if l.cfg.Start == StartNew {
			p.UID, err = newest(b, s)
		}
	}
	if err != nil {
		return nil, err
	}
	return &p, l.save(ctx, &p)
}

// newest returns the UID of the last letter in the folder.
func newest(b *mailstore.Store, s mailstore.State) (uint32, error) {
	if s.UIDNext > 0 {
		return s.UIDNext - 1, nil
	}
	uids, err := b.After(0)
	if err != nil || len(uids) == 0 {
		return 0, err
	}
	return uids[len(uids)-1], nil
}

// renumbered moves a position to a folder whose letters have new UIDs.
func (l *Listener) renumbered(b *mailstore.Store, s mailstore.State, p *position) error {
	l.log.Warn("the server has numbered the letters anew (UIDVALIDITY); letters that were handled before are recognised by date and Message-ID",
		"folder", p.Folder, "before", p.UIDValidity, "now", s.UIDValidity, "since", p.Last)
	last, err := newest(b, s)
	if err != nil {
		return err
	}
	p.UIDValidity, p.Since = s.UIDValidity, p.Last
	if p.Last.IsZero() { // nothing was handled yet
		p.UID = 0
		if l.cfg.Start == StartNew {
			p.UID = last
		}
		return nil
	}
	uids, err := b.Search(mailstore.Query{Since: p.Last.Add(-dateSlack)})
	if err != nil {
		return err
	}
	if p.UID = last; len(uids) > 0 {
		p.UID = uids[0] - 1
	}
	return nil
}
