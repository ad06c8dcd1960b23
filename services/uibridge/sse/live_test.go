package sse_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/contract"
)

// A turn of a live system, over HTTP only, valid against schemas/ui; then the stream is
// resumed after every event, and exactly the rest arrives.
func TestAWholeTurnOfALiveSystem(t *testing.T) {
	l := transporttest.Start(t)
	file := filepath.Join(l.Workspace, "a.txt")
	transporttest.Fatal(t, os.WriteFile(file, []byte("x"), 0o600))
	client := &http.Client{Transport: l.Transport()}
	here := l.URL + "/v1/agents/main/sessions/s/"
	post := func(path, body string) {
		t.Helper()
		res, err := client.Post(here+path, "application/json", strings.NewReader(body))
		transporttest.Fatal(t, err)
		defer func() { _ = res.Body.Close() }()
		var r contract.Receipt
		if err := json.NewDecoder(res.Body).Decode(&r); err != nil || res.StatusCode != http.StatusAccepted ||
			r.Sequence == 0 {
			t.Fatalf("%s is answered %s %+v, %v", path, res.Status, r, err)
		}
	}
	s := follow(t, client, here+"events?after=0&commits=1", "")
	check := transporttest.Schema(t, "notification")
	var whole []event
	until := func(name string) event {
		t.Helper()
		for {
			e, err := s.next()
			transporttest.Fatal(t, err)
			check([]byte(`{"jsonrpc":"2.0","method":"` + e.name + `","params":` + e.data + `}`))
			if e.id != "" {
				whole = append(whole, e)
			}
			if e.name == name {
				return e
			}
		}
	}
	until(contract.OnAttached)
	post("inputs", `{"input":"delete a.txt","id":"one"}`)
	var asked contract.ToolCallRequest
	transporttest.Fatal(t, json.Unmarshal([]byte(until(contract.OnToolCallRequest).data), &asked))
	post("confirmations",
		`{"confirmationId":"`+asked.ConfirmationID+`","hash":"`+asked.Hash+`","approved":true,"reason":"I made it"}`)
	if e := until(contract.OnTurnEnd); strings.Contains(e.data, "failed") {
		t.Errorf("the turn ended with %s", e.data)
	}
	until(contract.OnReadyForInput)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after the approval: %v", err)
	}
	post("commands", `{"name":"tools"}`)
	until(contract.OnNewMessage)

	for i, from := range whole {
		s := follow(t, client, here+"events?after=0&commits=1", from.id)
		for _, want := range whole[i+1:] {
			e, err := s.next()
			for err == nil && e.id == "" {
				e, err = s.next()
			}
			if err != nil || e != want {
				t.Fatalf("after %s comes %+v (%v), want %+v", from.id, e, err, want)
			}
		}
	}
}
