package httpapi_test

import (
	"testing"
	"time"

	"skandha.dev/services/provider/httpapi"
)

// Servers differ in everything but the message.
func TestParseFault(t *testing.T) {
	for body, want := range map[string]httpapi.Fault{
		`{"error":{"message":"m","type":"t","code":"c"}}`:             {Message: "m", Type: "t", Code: "c"},
		`{"error":{"message":"m","code":429,"status":"S"}}`:           {Message: "m", Type: "S", Code: "429"},
		`{"error":{"message":"m","details":"see the docs"}}`:          {Message: "m"},
		`{"error":{"message":"m","details":{"x":1}}}`:                 {Message: "m"},
		`{"error":{"message":"m","details":[{"reason":7}]}}`:          {Message: "m"},
		`{"error":{"message":"m","details":[{"reason":"R"}]}}`:        {Message: "m", Reason: "R"},
		`{"error":{"message":"m","details":[{"retryDelay":"2.5s"}]}}`: {Message: "m", Retry: 2500 * time.Millisecond},
		`{"error":"m"}`:   {Message: "m"},
		`{"message":"m"}`: {Message: "m"},
		`{"detail":"m"}`:  {Message: "m"},
		`{}`:              {},
		`<html>`:          {},
	} {
		if got := httpapi.ParseFault([]byte(body)); got != want {
			t.Errorf("%s is %+v, want %+v", body, got, want)
		}
	}
}
