package e2etest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// DeadLetter waits for the copy that was kept of a cause, and returns why it was.
func (s *System) DeadLetter(seq uint64) (reason string) {
	s.T.Helper()
	Eventually(s.T, fmt.Sprintf("a dead letter of the cause at %d", seq), func() bool {
		for after := uint64(0); ; {
			h, at, err := s.dead(after)
			if err != nil {
				return false
			}
			if h.Get("Skandha-Sequence") == strconv.FormatUint(seq, 10) {
				reason = h.Get("Skandha-Reason")
				return true
			}
			after = at
		}
	})
	return reason
}

func (s *System) dead(after uint64) (nats.Header, uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m, err := s.Tail.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.DEAD",
		fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, after+1))
	if err != nil {
		return nil, 0, err
	}
	var got struct {
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &got); err != nil {
		return nil, 0, err
	}
	if got.Message == nil {
		return nil, 0, errEnd
	}
	h, err := nats.DecodeHeadersMsg(got.Message.Header)
	return h, got.Message.Seq, err
}
