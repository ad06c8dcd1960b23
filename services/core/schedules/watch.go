package schedules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/internal/text"
)

const (
	watchEvery = "15m"            // if the agent says nothing
	atOnce     = 32               // pages that a core reads at a time
	ofOneAgent = 8                // of these, for one agent
	lookWait   = 90 * time.Second // for one page
	keptValue  = 256              // bytes of a value that is kept, to be shown beside the next one
	shownValue = 16 << 10         // bytes of a value that the agent is shown
	maxURL     = 2048
)

// seen is what a watch has seen.
type seen struct {
	Inputs int    `json:"inputs,omitempty"` // so far
	Sum    string `json:"sum,omitempty"`    // of the last value; empty: none
	Value  string `json:"value,omitempty"`  // if it is short
	Beyond string `json:"beyond,omitempty"` // above or below, if the value is
}

// checkWatch reports what is wrong with a watch. The error begins with the name of the field.
func checkWatch(w coreapi.When) error {
	if w.Watch == nil {
		return nil
	}
	u, err := url.Parse(w.Watch.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(w.Watch.URL) > maxURL:
		return fmt.Errorf("url: want an absolute http or https URL of at most %d bytes", maxURL)
	case u.User != nil:
		return errors.New("url: it has a password or a user; leave them out")
	case w.Every == "":
		return errors.New("every: a watch needs the interval at which the page is read, such as 15m")
	}
	if err := jsondoc.CheckPointer("field", w.Watch.Field); err != nil {
		return err
	}
	above, below := w.Watch.Above, w.Watch.Below
	if above != nil && below != nil && *below >= *above {
		return errors.New("below, above: want below to be less than above")
	}
	return nil
}

// look reads the page, finds the value and compares it with what was seen before. said describes an
// occurrence for the agent; it is empty if there is none.
func (s *Schedules) look(ctx context.Context, r *record) (now seen, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	page, err := s.cfg.Read(ctx, r.Ref, r.Turn, r.source(), r.When.Watch.URL)
	if err != nil {
		return now, "", err
	}
	return judge(*r.When.Watch, r.Seen, page)
}

// judge compares what a page shows with what was seen before.
func judge(w coreapi.Watch, was seen, page string) (now seen, said string, err error) {
	value, err := valueOf(w, page)
	if err != nil {
		return now, "", err
	}
	sum := sha256.Sum256([]byte(value))
	now = seen{Inputs: was.Inputs, Sum: hex.EncodeToString(sum[:])}
	if len(value) <= keptValue {
		now.Value = value
	}
	if w.Above == nil && w.Below == nil {
		if was.Sum != "" && was.Sum != now.Sum {
			said = changed(was.Value, value)
		}
		return now, said, nil
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(number) {
		return now, "", fmt.Errorf("the value is %q, which is not a number", text.Cut(value, 80))
	}
	switch {
	case w.Above != nil && number > *w.Above:
		now.Beyond = "above " + decimal(*w.Above)
	case w.Below != nil && number < *w.Below:
		now.Beyond = "below " + decimal(*w.Below)
	}
	if now.Beyond != "" && now.Beyond != was.Beyond {
		said = fmt.Sprintf("The value is %s, which is %s.", value, now.Beyond)
	}
	return now, said, nil
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// valueOf finds the value on a page.
func valueOf(w coreapi.Watch, page string) (string, error) {
	if w.Field == "" {
		return strings.TrimSpace(page), nil
	}
	doc, err := jsondoc.Decode([]byte(page))
	if err != nil {
		return "", fmt.Errorf("field is set, but the page is not JSON: %w", err)
	}
	found, ok := jsondoc.Lookup(doc, w.Field)
	if !ok {
		return "", fmt.Errorf("the page has no field %s", w.Field)
	}
	if s, is := found.(string); is {
		return strings.TrimSpace(s), nil
	}
	b, err := json.Marshal(found)
	return string(b), err
}

func changed(was, value string) string {
	if was != "" && len(value) <= keptValue {
		return fmt.Sprintf("The value was %q. It is now %q.", was, value)
	}
	return "It has changed. It is now:\n" + text.Cut(value, shownValue)
}

// handleWatch sets the clock for the next time, and reads the page meanwhile: a server that hangs
// delays nothing else.
func (s *Schedules) handleWatch(ctx context.Context, r *record, now time.Time) error {
	at := r.plan.due(r.key(), r.Last, now)
	if at.IsZero() {
		return s.lay(ctx, r)
	}
	if next := r.plan.next(at); !next.IsZero() {
		if err := s.layAt(ctx, r, next); err != nil {
			return err
		}
	}
	if !s.beginLook(r) {
		s.skipped.Add(1)
		s.bursts.Log(slog.LevelWarn, string(r.Agent), "a page is not read this time: it still is, or too many others are", "session", r.Ref, "name", r.Name)
		return nil
	}
	s.looking.Go(func() {
		defer s.endLook(r)
		if err := s.watch(s.work, r, at); err != nil && s.work.Err() == nil {
			s.cfg.Log.Info("a watch failed; the page is read again next time", "session", r.Ref, "name", r.Name, "error", err)
		}
	})
	return nil
}

// beginLook reports whether the page can be read now: not while it is, and not while too many others are.
func (s *Schedules) beginLook(r *record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for _, a := range s.looks {
		if a == r.Agent {
			own++
		}
	}
	if _, reading := s.looks[r.key()]; reading || len(s.looks) >= atOnce || own >= ofOneAgent {
		return false
	}
	s.looks[r.key()] = r.Agent
	return true
}

func (s *Schedules) endLook(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.looks, r.key())
}

// watch reads the page once, and makes an occurrence of what it shows. The input is stored before what
// was seen: a core that dies in between sees it again and stores the same input.
func (s *Schedules) watch(ctx context.Context, r *record, at time.Time) error {
	now, said, err := s.look(ctx, r)
	trouble := ""
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		now, trouble = r.Seen, text.Cut(err.Error(), keptValue)
	case said != "" && s.waits(ctx, r):
		now, said = r.Seen, "" // it is seen again once that input is handled
	}
	ctx, cancel := context.WithTimeout(ctx, emitWait)
	defer cancel()
	if said != "" {
		id := fmt.Sprintf("%s/%s/seen-%d", r.Name, r.Made, now.Inputs)
		said = fmt.Sprintf("%s\n%s", r.When.Watch.URL, said)
		if _, err := s.emit(ctx, r, id, said, at); err != nil {
			return err
		}
		now.Inputs++
		r.Occurred++
	}
	changed := now != r.Seen || trouble != r.Trouble
	if changed && trouble != "" {
		s.cfg.Log.Warn("the page of a watch cannot be read", "session", r.Ref, "name", r.Name, "error", trouble)
	}
	last := r.plan.next(at).IsZero()
	r.Seen, r.Trouble = now, trouble
	if said != "" || last {
		r.Last = at
	}
	switch {
	case r.over():
		err = s.finish(ctx, r, time.Time{})
	case changed || said != "":
		err = s.save(ctx, r)
	default:
		return nil
	}
	if errors.Is(err, bus.ErrFenceLost) { // it was replaced or deleted meanwhile
		return nil
	}
	return err
}
