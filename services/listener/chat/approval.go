package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
)

// maxReason is how much of a reason is stored, in bytes.
const maxReason = 512

// request is a request for approval that was shown with a code, as it is stored.
type request struct {
	Ref            subject.Ref `json:"ref"`
	ConfirmationID string      `json:"confirmation_id"`
	Hash           string      `json:"hash"`
	Tool           string      `json:"tool"`
	ExpiresAt      time.Time   `json:"expires_at"`
	Needs          string      `json:"needs,omitempty"`       // what an approval takes, if not one answer
	AnsweredBy     string      `json:"answered_by,omitempty"` // the account that answered here

	revision uint64
}

// letters and digits of a code: none that looks like another one.
const letters, digits = "abcdefghjkmnpqrstuvwxyz", "0123456789"

// codeLength is the number of characters of a code: 31 bits.
const codeLength = 8

// codeOf derives the code of a request from the delivery's key, so that a repeated delivery
// shows the same one. Letters and digits alternate: no word of a language is a code.
func codeOf(key string) string {
	hash := digest("approval", key)
	var code strings.Builder
	for i := range codeLength {
		set := letters
		if i%2 == 1 {
			set = digits
		}
		var n int
		_, _ = fmt.Sscanf(hash[i*4:i*4+4], "%x", &n) // hexadecimal digits, always
		code.WriteByte(set[n%len(set)])
	}
	return code.String()
}

// answer matches what a person writes to answer a request.
var answer = regexp.MustCompile(`(?is)^\s*(yes|no)\s+((?:[a-z]\d){4})(?:\s+(.*))?$`)

// Answer is what a person has written to answer a request for approval.
type Answer struct {
	Approved bool
	Code     string
	Reason   string
}

// ParseAnswer reads "yes CODE" and "no CODE reason".
func ParseAnswer(s string) (Answer, bool) {
	m := answer.FindStringSubmatch(s)
	if m == nil {
		return Answer{}, false
	}
	return Answer{
		Approved: strings.EqualFold(m[1], "yes"), Code: strings.ToLower(m[2]), Reason: text.Cut(strings.TrimSpace(m[3]), maxReason),
	}, true
}

// key names a request in the bucket: by the listener, the conversation and the code.
func (h *Hub) key(to Place, code string) string {
	return string(h.name) + ".approval." + digest(to.Room, to.Thread, to.Account)[:hashDigits] + "." + code
}

// remember stores a request before it is shown, and returns its code.
func (h *Hub) remember(ctx context.Context, to Place, m contract.Outgoing) (code string, err error) {
	code = codeOf(m.Key)
	r := request{
		Ref: subject.Ref{Agent: m.Agent, Session: m.Session}, ConfirmationID: m.Approval.ConfirmationID, Hash: m.Approval.Hash,
		Tool: m.Approval.Tool, ExpiresAt: m.Approval.ExpiresAt, Needs: m.Approval.Needs,
	}
	err = h.put(ctx, to, code, r)
	if errors.Is(err, bus.ErrConflict) { // the delivery is a repetition
		old, readErr := h.recall(ctx, to, code)
		if readErr == nil && old.ConfirmationID != r.ConfirmationID {
			readErr = errors.New("another request has the same code")
		}
		err = readErr
	}
	if err != nil {
		return "", fmt.Errorf("storing the request for approval: %w", err)
	}
	return code, nil
}

func (h *Hub) put(ctx context.Context, to Place, code string, r request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = h.bucket.Put(ctx, h.key(to, code), body, journal.Fence{Revision: r.revision})
	return err
}

func (h *Hub) recall(ctx context.Context, to Place, code string) (r request, err error) {
	e, err := h.bucket.Get(ctx, h.key(to, code))
	if err == nil {
		err = json.Unmarshal(e.Value, &r)
	}
	r.revision = e.Revision
	return r, err
}

// decide answers a request as the account, if it may, and returns what the person is to read. The
// error means that the answer may not be stored; it can be repeated.
func (h *Hub) decide(ctx context.Context, in Place, account string, p place, a Answer) (reply string, err error) {
	if !p.mayApprove(account) {
		return "You may not answer requests for approval here (approve in the configuration of listener " +
			string(h.name) + ").", nil
	}
	r, err := h.recall(ctx, in, a.Code)
	if errors.Is(err, bus.ErrNotFound) {
		return "No request for approval in this conversation has the code " + a.Code + ".", nil
	}
	if err != nil {
		return "", err
	}
	if why := h.closed(ctx, r); why != "" {
		return why + " Your answer has no effect.", nil
	}
	seq, err := h.answerer.Confirm(ctx, r.Ref, event.Confirmation{
		ConfirmationID: r.ConfirmationID, Hash: r.Hash, Approved: a.Approved, Reason: a.Reason, Source: h.source(in.Room), From: account,
	})
	switch {
	case errors.Is(err, contract.ErrInvalid), errors.Is(err, contract.ErrRefused):
		return "Your answer was not stored: " + err.Error(), nil
	case err != nil:
		return "", err
	}
	if r.Needs != "" { // others may have to answer, too
		return h.judged(ctx, r, seq, a), nil
	}
	r.AnsweredBy = account
	if err := h.put(ctx, in, a.Code, r); err != nil { // a second answer gets no explanation, and core ignores it
		h.log.Warn("the answer to a request for approval is stored, but not noted", "code", a.Code, "error", err)
	}
	if a.Approved {
		return fmt.Sprintf("Approved: %s (%s).", r.Tool, a.Code), nil
	}
	return fmt.Sprintf("Denied: %s (%s).", r.Tool, a.Code), nil
}

// judged waits briefly for core's decision on an answer to a request with a rule about who decides, and
// says what came of it.
func (h *Hub) judged(ctx context.Context, r request, seq uint64, a Answer) string {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	now, err := h.progress(ctx, r.Ref, r.ConfirmationID)
	for ; ; now, err = h.progress(ctx, r.Ref, r.ConfirmationID) {
		switch {
		case err != nil:
			return fmt.Sprintf("Your answer about %s (%s) is stored. Needed: %s.", r.Tool, a.Code, r.Needs)
		case now.Until < seq:
		case !now.Waits && a.Approved:
			return fmt.Sprintf("Approved: %s (%s).", r.Tool, a.Code)
		case !now.Waits:
			return fmt.Sprintf("Denied: %s (%s).", r.Tool, a.Code)
		default:
			return h.stillWaits(r, a, now.Approved)
		}
		select {
		case <-ctx.Done():
		case <-time.After(askPause):
		}
	}
}

func (h *Hub) stillWaits(r request, a Answer, approved []string) string {
	text := fmt.Sprintf("%s (%s) still waits for approval", r.Tool, a.Code)
	if len(approved) > 0 {
		text += ". Approved by " + strings.Join(approved, ", ")
	}
	return text + ". Needed: " + r.Needs + ". If yours is missing, the log of the session says why."
}

// closed says why a request cannot be answered any more; empty if it can.
func (h *Hub) closed(ctx context.Context, r request) string {
	switch {
	case r.AnsweredBy != "":
		return "This request was already answered by " + r.AnsweredBy + "."
	case !h.now().Before(r.ExpiresAt):
		return "This request expired at " + clockOf(r.ExpiresAt) + ", and the call was denied."
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	now, err := h.progress(ctx, r.Ref, r.ConfirmationID)
	if err != nil { // core will tell: it ignores an answer to what does not wait
		h.log.Info("could not ask core whether a request still waits", "error", err)
		return ""
	}
	if !now.Waits {
		return "This request was answered elsewhere, or its turn has ended."
	}
	return ""
}

func clockOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
