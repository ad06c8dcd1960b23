package provider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/provider"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/openaitest"
)

// One question that fails, however often core asks it again, leaves the API to the
// questions of others, and its failure says what the API said.
func TestAQuestionThatFailsLeavesTheAPIToOthers(t *testing.T) {
	api := openaitest.New(t)
	const attempts, tries = 4, 3
	for range attempts * tries {
		api.Next(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"message":"the model is on fire"}`))
		})
	}
	a, err := openai.New(openai.Config{
		BaseURL: api.URL, APIKey: openaitest.Key, Model: openaitest.Model,
		Retry: retry.Config{Tries: tries, Pause: time.Millisecond, TripAfter: 2, OpenFor: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, provider.Config{}, a)
	for i := range attempts {
		q := question(t, "t1-p1", "hello")
		q.Attempt = fmt.Sprint("n", i)
		if a := c.answer(c.ask(q)); a.Error == nil ||
			!strings.HasSuffix(a.Error.Message, " answered 500: the model is on fire") {
			t.Errorf("attempt %d: answer is %+v", i, a.Error)
		}
	}
	if a := c.answer(c.ask(question(t, "t2-p1", "hello"))); a.Response == nil {
		t.Errorf("the next question: %+v", a.Error)
	}
}
