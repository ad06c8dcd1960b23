package uibridge

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// VerbLink asks any replica for a one-time link to its page; the answer is a [Link].
const VerbLink = "link"

// Link opens the page and logs the browser in as the owner. It works once.
type Link struct {
	URL     string    `json:"url"`     // with the one-time code in the fragment, which browsers do not send
	Page    string    `json:"page"`    // the same without the code
	Expires time.Time `json:"expires"` // when the code expires
}

// Link creates a one-time link.
func (s *Service) Link(ctx context.Context) (Link, error) {
	if s.listener == nil {
		return Link{}, fmt.Errorf("the page is not served")
	}
	code, expires, err := s.access.Code(ctx)
	if err != nil {
		return Link{}, err
	}
	page := s.URL() + "/"
	return Link{URL: page + "#code=" + code, Page: page, Expires: expires}, nil
}

// AskLink asks any bridge on the bus for a one-time link. The connection must have no other
// caller, because only one of them would receive the answer.
func AskLink(ctx context.Context, b *journal.Journal) (Link, error) {
	c, err := b.NewCaller()
	if err != nil {
		return Link{}, fmt.Errorf("opening the reply subscription: %w", err)
	}
	defer func() { _ = c.Close() }() // the answer has arrived, or will not
	body, err := c.Request(ctx, subject.Service(ServiceName, VerbLink), ServiceName, nil)
	if err != nil {
		return Link{}, fmt.Errorf("asking the UI bridge for a link: %w", err)
	}
	var l Link
	if err := json.Unmarshal(body, &l); err != nil {
		return Link{}, fmt.Errorf("asking the UI bridge for a link: %w", err)
	}
	return l, nil
}
