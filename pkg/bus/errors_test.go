package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestErrorsAreTheSameInAnotherProcess(t *testing.T) {
	for _, sentinel := range []error{
		ErrInvalidArgument, ErrNotFound, ErrDenied, ErrUnavailable, ErrTimeout, ErrTooLarge, ErrConflict, ErrInternal,
		ErrCancelled,
	} {
		here := fmt.Errorf("doing x: %w", sentinel)
		e := wireError(here)
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		there := errorFromWire(nats.Header{ErrorHeader: {string(e.Code)}}, body)
		if !errors.Is(there, sentinel) || there.Error() != here.Error() || Retryable(there) != Retryable(here) {
			t.Errorf("%v became %v", here, there)
		}
		for _, other := range []error{ErrNotFound, ErrTimeout} {
			if errors.Is(sentinel, other) != (sentinel == other) { //nolint:errorlint // the very same one
				t.Errorf("%v is %v", sentinel, other)
			}
		}
	}
}

func TestForeignErrorsAreRead(t *testing.T) {
	for _, c := range []struct {
		header, body string
		want         Code
	}{
		{"", `{"code":"denied"}`, ""},
		{"not_found", "", CodeNotFound},
		{"not_found", `{"code":"denied","message":"no"}`, CodeNotFound}, // the header decides
		{"timeout", "not JSON", CodeTimeout},
		{"something_new", `{"message":"m"}`, CodeInternal},
	} {
		err := errorFromWire(nats.Header{ErrorHeader: {c.header}}, []byte(c.body))
		if CodeOf(err) != c.want || err != nil && err.Error() == "" {
			t.Errorf("%q %q: %v, want %q", c.header, c.body, err, c.want)
		}
	}
}

func TestLocalErrorsHaveCodes(t *testing.T) {
	for err, want := range map[error]Code{
		context.DeadlineExceeded:       CodeTimeout,
		nats.ErrTimeout:                CodeTimeout,
		ErrAmbiguous:                   CodeTimeout,
		context.Canceled:               CodeCancelled,
		nats.ErrMaxPayload:             CodeTooLarge,
		nats.ErrNoResponders:           CodeUnavailable,
		nats.ErrDisconnected:           CodeUnavailable,
		nats.ErrConnectionClosed:       CodeUnavailable,
		ErrRefused:                     CodeUnavailable,
		ErrFenceLost:                   CodeConflict,
		jetstream.ErrObjectNotFound:    CodeNotFound,
		errors.New("x"):                CodeInternal,
		fmt.Errorf("x: %w", ErrDenied): CodeDenied,
	} {
		if got := CodeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		wrapped := TransportError("doing", err)
		if !errors.Is(wrapped, err) || CodeOf(wrapped) != want {
			t.Errorf("%v became %v", err, wrapped)
		}
	}
	if CodeOf(nil) != "" || Retryable(nil) {
		t.Error("nil is an error")
	}
}

func TestWhatTheServerSaysOfAStoredMessage(t *testing.T) {
	for _, c := range []struct {
		code      jetstream.ErrorCode
		desc      string
		lost      bool
		refused   bool
		ambiguous bool
	}{
		{10071, "wrong last sequence: 5", true, false, false},
		{10164, "wrong last sequence", true, false, false},
		{10077, "maximum bytes exceeded", false, true, false},
		{10077, "maximum messages exceeded", false, true, false},
		{10077, "message too large", false, true, false},
		{10077, "write SESSIONS/msgs/1.blk: no space left on device", false, false, true},
		{10054, "message size exceeds maximum allowed", false, true, false},
		{10060, "expected stream does not match", false, true, false},
		{10158, "duplicate message id is in process", false, false, true},
	} {
		err := storeError(&jetstream.APIError{Code: 400, ErrorCode: c.code, Description: c.desc})
		if errors.Is(err, ErrFenceLost) != c.lost || errors.Is(err, ErrRefused) != c.refused ||
			errors.Is(err, ErrAmbiguous) != c.ambiguous {
			t.Errorf("%d %s: %v", c.code, c.desc, err)
		}
	}
	for _, m := range []*nats.Msg{
		{Data: []byte("garbage")},
		{Data: []byte("{}")},
		{Data: []byte(`{"stream":"SESSIONS"}`)},
		{Header: nats.Header{"Status": {"503"}}},
	} {
		if _, _, err := parseAck(m); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s %v: %v, want ErrAmbiguous", m.Data, m.Header, err)
		}
	}
}
