package auditor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/signature"
)

// Head is where the end of the chain is published, out of reach of those who can write to the bus.
type Head struct {
	File     string        // heads are appended to it, one JSON object a line; empty: none
	Webhook  string        // URL to which the latest head is sent; empty: none
	Secret   string        // of the webhook, whsec_…, by which requests are signed (Standard Webhooks); empty: they are not
	Interval time.Duration // the shortest time between two heads
}

// DefaultInterval is the shortest time between two published heads.
const DefaultInterval = 5 * time.Minute

const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour
	// failures is how many attempts may fail before status says so.
	failures    = 3
	requestWait = 20 * time.Second
	maxReply    = 4 << 10
)

// Validate reports everything that is wrong; each error names its field.
func (h Head) Validate() error {
	var errs []error
	if u, err := url.Parse(h.Webhook); h.Webhook != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("audit.head.webhook is %q, want an http or https address", secret.HideText(h.Webhook)))
	}
	if h.Secret != "" {
		if _, err := h.key(); err != nil {
			errs = append(errs, fmt.Errorf("audit.head.secret: %w", err))
		}
	}
	if h.Interval != 0 && (h.Interval < minInterval || h.Interval > maxInterval) {
		errs = append(errs, fmt.Errorf("audit.head.interval is %v, want %v to %v", h.Interval, minInterval, maxInterval))
	}
	return errors.Join(errs...)
}

func (h Head) key() ([]byte, error) {
	text, err := secret.Read(h.Secret)
	if err != nil {
		return nil, err
	}
	return signature.Key(text)
}

// published returns the heads of the file; none if there is no file yet.
func (h Head) published() ([]audit.Head, error) {
	if h.File == "" {
		return nil, nil
	}
	f, err := os.Open(h.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return audit.ReadHeads(f)
}

// published is what was published last, by this core.
type published struct {
	file, webhook audit.Head
	failed        int // attempts since then
}

// publish publishes the head whenever this core has written the last entry and the interval is over.
func (a *Auditor) publish(ctx context.Context) {
	h := a.cfg.Head
	if h.File == "" && h.Webhook == "" {
		return
	}
	if h.Interval <= 0 {
		h.Interval = DefaultInterval
	}
	tick := time.NewTicker(min(h.Interval, time.Minute))
	defer tick.Stop()
	var next time.Time
	for {
		if now := a.cfg.Now(); !now.Before(next) {
			switch sent, err := a.publishHead(ctx); {
			case err != nil:
				a.unpublished(err)
			case sent:
				next = now.Add(h.Interval)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// publishHead publishes the head, unless it was, and reports whether it did.
func (a *Auditor) publishHead(ctx context.Context) (sent bool, err error) {
	if err := a.lock(ctx); err != nil {
		return false, nil
	}
	head, mine := a.have.chain.Head(), a.have.writer == a.me
	a.unlock()
	if !mine || head.N == 0 {
		return false, nil
	}
	a.mu.Lock()
	was := a.published
	a.mu.Unlock()
	body, err := json.Marshal(head)
	if err != nil {
		return false, err
	}
	if a.cfg.Head.File != "" && was.file != head {
		if err := a.cfg.Head.write(body); err != nil {
			return false, fmt.Errorf("writing the head: %w", err)
		}
		was.file, sent = head, true
	}
	if a.cfg.Head.Webhook != "" && was.webhook != head {
		if failed := a.cfg.Head.send(ctx, head, body, a.cfg.Now()); failed != nil {
			err = fmt.Errorf("sending the head to the webhook: %w", failed)
		} else {
			was.webhook, sent = head, true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.published.file, a.published.webhook = was.file, was.webhook; err == nil {
		a.published.failed, a.unheard = 0, ""
	}
	return sent, err
}

// unpublished counts an attempt that failed.
func (a *Auditor) unpublished(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.published.failed++; a.published.failed == failures {
		a.unheard = err.Error()
		a.cfg.Log.Warn("the head of the audit log is not published", "error", err)
	}
}

// Unpublished says why the head is not published; empty: it is, or need not be.
func (a *Auditor) Unpublished() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unheard
}

// write appends a head to the file, and does not return before it is on the disk.
func (h Head) write(body []byte) error {
	f, err := os.OpenFile(h.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644) //nolint:gosec // heads are for everybody
	if err != nil {
		return err
	}
	_, err = f.Write(append(body, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// send posts a head to the webhook.
func (h Head) send(ctx context.Context, head audit.Head, body []byte, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Webhook, bytes.NewReader(body))
	if err != nil {
		return err
	}
	id := "audit-" + strconv.FormatUint(head.N, 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(signature.HeaderID, id)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	if h.Secret != "" {
		key, err := h.key() // read each time, so that it can be changed
		if err != nil {
			return err
		}
		req.Header.Set(signature.HeaderSignature, signature.Sign(key, id, now, body))
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err // the URL may hold a secret
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}
