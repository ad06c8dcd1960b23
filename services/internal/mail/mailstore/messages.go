package mailstore

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"

	"skandha.dev/services/internal/mail/letter"
)

// maxPartial is how much is read of a letter that is too large to be read as a whole.
const maxPartial = 256 << 10

// ErrGone means that the message does not exist any more: it was deleted, or moved to another
// folder.
var ErrGone = errors.New("the message does not exist in the folder (any more)")

// Message is a message in the open folder.
type Message struct {
	UID      uint32
	Flags    []string
	Received time.Time
	Size     int64
	Envelope *imap.Envelope // of [Store.Summaries]
	Raw      []byte         // of [Store.Fetch]; shorter than Size if the letter is too large
}

// Query says which messages are sought; empty fields do not matter.
type Query struct {
	From, To, Subject, Text string
	Since, Before           time.Time // of arrival; only the date counts
	Unseen                  bool
	MessageID               string
	MessageIDPart           string // text in the Message-ID
}

func (q Query) criteria() *imap.SearchCriteria {
	c := &imap.SearchCriteria{Since: q.Since, Before: q.Before}
	for _, h := range []struct{ key, value string }{
		{"From", q.From}, {"To", q.To}, {"Subject", q.Subject},
	} {
		if h.value != "" {
			c.Header = append(c.Header, imap.SearchCriteriaHeaderField{Key: h.key, Value: h.value})
		}
	}
	if q.MessageID != "" {
		c.Header = append(c.Header, imap.SearchCriteriaHeaderField{Key: "Message-ID", Value: "<" + q.MessageID + ">"})
	}
	if q.MessageIDPart != "" {
		c.Header = append(c.Header, imap.SearchCriteriaHeaderField{Key: "Message-ID", Value: q.MessageIDPart})
	}
	if q.Text != "" {
		c.Text = []string{q.Text}
	}
	if q.Unseen {
		c.NotFlag = []imap.Flag{imap.FlagSeen}
	}
	return c
}

// Search returns the UIDs of the messages that match, in ascending order.
func (b *Store) Search(q Query) ([]uint32, error) { return b.search(q.criteria()) }

// After returns the UIDs that are greater than uid, in ascending order.
func (b *Store) After(uid uint32) ([]uint32, error) {
	if uid == math.MaxUint32 {
		return nil, nil
	}
	var set imap.UIDSet
	set.AddRange(imap.UID(uid)+1, math.MaxUint32) // n:* would always find the last one, too
	return b.search(&imap.SearchCriteria{UID: []imap.UIDSet{set}})
}

func (b *Store) search(c *imap.SearchCriteria) ([]uint32, error) {
	defer b.within()()
	data, err := b.client.UIDSearch(c, nil).Wait()
	if err != nil {
		return nil, fmt.Errorf("searching: %w", said(err))
	}
	uids := data.AllUIDs()
	out := make([]uint32, len(uids))
	for i, u := range uids {
		out[i] = uint32(u)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Summaries describes messages, in the order of the UIDs, without those that are gone.
func (b *Store) Summaries(uids []uint32) ([]Message, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	defer b.within()()
	found, err := b.client.Fetch(uidSet(uids), &imap.FetchOptions{
		UID: true, Envelope: true, Flags: true, InternalDate: true, RFC822Size: true,
	}).Collect()
	if err != nil {
		return nil, fmt.Errorf("reading messages: %w", said(err))
	}
	at := map[uint32]Message{}
	for _, m := range found {
		if m.Envelope != nil {
			at[uint32(m.UID)] = Message{
				UID: uint32(m.UID), Flags: flags(m.Flags), Received: m.InternalDate, Size: m.RFC822Size, Envelope: m.Envelope,
			}
		}
	}
	var out []Message
	for _, u := range uids {
		if m, ok := at[u]; ok {
			out = append(out, m)
		}
	}
	return out, nil
}

// Fetch reads a message. Of one that is larger than limits.Bytes, it reads the beginning. The error is
// [ErrGone] if the message does not exist.
func (b *Store) Fetch(uid uint32, limits letter.Limits) (Message, error) {
	m, err := b.describe(uid)
	if err != nil {
		return m, err
	}
	size := limits.Bytes
	if m.Size > limits.Bytes {
		size = min(maxPartial, limits.Bytes)
	}
	m.Raw, err = b.body(uid, size)
	return m, err
}

func (b *Store) describe(uid uint32) (Message, error) {
	defer b.within()()
	found, err := b.client.Fetch(imap.UIDSetNum(imap.UID(uid)), &imap.FetchOptions{
		UID: true, Flags: true, InternalDate: true, RFC822Size: true,
	}).Collect()
	if err != nil {
		return Message{}, fmt.Errorf("reading message %d: %w", uid, said(err))
	}
	for _, m := range found {
		if uint32(m.UID) == uid {
			return Message{UID: uid, Flags: flags(m.Flags), Received: m.InternalDate, Size: m.RFC822Size}, nil
		}
	}
	return Message{}, fmt.Errorf("message %d: %w", uid, ErrGone)
}

func (b *Store) body(uid uint32, size int64) ([]byte, error) {
	defer b.within()()
	section := &imap.FetchItemBodySection{Peek: true, Partial: &imap.SectionPartial{Size: size}}
	found, err := b.client.Fetch(imap.UIDSetNum(imap.UID(uid)), &imap.FetchOptions{
		UID: true, BodySection: []*imap.FetchItemBodySection{section},
	}).Collect()
	if err != nil {
		return nil, fmt.Errorf("reading message %d: %w", uid, said(err))
	}
	for _, m := range found {
		if raw := m.FindBodySection(section); raw != nil && uint32(m.UID) == uid {
			return raw[:min(int64(len(raw)), size)], nil
		}
	}
	return nil, fmt.Errorf("message %d: %w", uid, ErrGone)
}

// FlagsSince returns the flags of the messages that have changed since a [State.ModSeq].
func (b *Store) FlagsSince(modSeq uint64) (map[uint32][]string, error) {
	defer b.within()()
	var all imap.UIDSet
	all.AddRange(1, math.MaxUint32)
	found, err := b.client.Fetch(all, &imap.FetchOptions{UID: true, Flags: true, ChangedSince: modSeq}).Collect()
	if err != nil {
		return nil, fmt.Errorf("reading changes: %w", said(err))
	}
	out := map[uint32][]string{}
	for _, m := range found {
		out[uint32(m.UID)] = flags(m.Flags)
	}
	return out, nil
}

// Seen marks a message as read.
func (b *Store) Seen(uid uint32) error {
	defer b.within()()
	err := b.client.Store(imap.UIDSetNum(imap.UID(uid)), &imap.StoreFlags{
		Op: imap.StoreFlagsAdd, Silent: true, Flags: []imap.Flag{imap.FlagSeen},
	}, nil).Close()
	if err != nil {
		return fmt.Errorf("marking message %d as read: %w", uid, said(err))
	}
	return nil
}

// Move moves a message to another folder, which is created if it does not exist. Moving one
// that is gone does nothing.
func (b *Store) Move(uid uint32, folder string) error {
	err := b.move(uid, folder)
	if no, ok := errors.AsType[*imap.Error](err); ok && no.Code == imap.ResponseCodeTryCreate {
		if err = b.create(folder); err == nil {
			err = b.move(uid, folder)
		}
	}
	if err != nil {
		return fmt.Errorf("moving message %d to %q: %w", uid, folder, said(err))
	}
	return nil
}

func (b *Store) move(uid uint32, folder string) error {
	defer b.within()()
	_, err := b.client.Move(imap.UIDSetNum(imap.UID(uid)), folder).Wait()
	return err
}

func (b *Store) create(folder string) error {
	defer b.within()()
	err := b.client.Create(folder, nil).Wait()
	if no, ok := errors.AsType[*imap.Error](err); ok && no.Code == imap.ResponseCodeAlreadyExists {
		return nil
	}
	return err
}

// Append stores a message in a folder, marked as read.
func (b *Store) Append(folder string, raw []byte) error {
	err := b.store(folder, raw)
	if no, ok := errors.AsType[*imap.Error](err); ok && no.Code == imap.ResponseCodeTryCreate {
		if err = b.create(folder); err == nil {
			err = b.store(folder, raw)
		}
	}
	if err != nil {
		return fmt.Errorf("storing a message in %q: %w", folder, said(err))
	}
	return nil
}

func (b *Store) store(folder string, raw []byte) error {
	defer b.within()()
	cmd := b.client.Append(folder, int64(len(raw)), &imap.AppendOptions{Flags: []imap.Flag{imap.FlagSeen}})
	_, err := cmd.Write(raw)
	if end := cmd.Close(); err == nil && !errors.Is(end, io.ErrShortWrite) {
		err = end
	}
	if _, end := cmd.Wait(); end != nil {
		return end // the server's words say more than a failed write
	}
	return err
}

// Folders lists the folders, at most maxFolders.
func (b *Store) Folders() ([]string, error) {
	defer b.within()()
	all, err := b.client.List("", "*", nil).Collect()
	if err != nil {
		return nil, fmt.Errorf("listing folders: %w", said(err))
	}
	var out []string
	for _, f := range all[:min(len(all), maxFolders)] {
		out = append(out, f.Mailbox)
	}
	return out, nil
}

const maxFolders = 100

// Sent returns the folder for sent mail: the configured one, the one that the server marks, or
// "Sent".
func (b *Store) Sent() (string, error) {
	if b.account.Folders.Sent != "" {
		return b.account.Folders.Sent, nil
	}
	if b.client.Caps().Has(imap.CapSpecialUse) {
		defer b.within()()
		all, err := b.client.List("", "*", &imap.ListOptions{ReturnSpecialUse: true}).Collect()
		if err != nil {
			return "", fmt.Errorf("listing folders: %w", said(err))
		}
		for _, f := range all {
			if slices.Contains(f.Attrs, imap.MailboxAttrSent) {
				return f.Mailbox, nil
			}
		}
	}
	return "Sent", nil
}

func uidSet(uids []uint32) imap.UIDSet {
	var set imap.UIDSet
	for _, u := range uids {
		set.AddNum(imap.UID(u))
	}
	return set
}

func flags(list []imap.Flag) []string {
	out := make([]string, 0, len(list))
	for _, f := range list {
		if f != imap.FlagWildcard && f != `\Recent` {
			out = append(out, string(f))
		}
	}
	slices.Sort(out)
	return out
}
