package secret

import (
	"encoding/json"
	"testing"
)

func TestKnownSecretsAreHidden(t *testing.T) {
	k := NewKnown("hush-hush", "hush-hush-2", `q"<\n`+"\n", "word")
	for in, want := range map[string]string{
		"it is hush-hush, or hush-hush-2": "it is (hidden), or (hidden)",
		"a word":                          "a word",
		"x" + `q"<\n` + "\n" + "y":        "x(hidden)y",
	} {
		if got := k.Hide(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		b, err := json.Marshal(map[string]string{"text": in})
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]string
		if err := json.Unmarshal(k.HideJSON(b), &out); err != nil || out["text"] != want {
			t.Errorf("%s becomes %q, %v, want %q", b, out, err, want)
		}
	}
	if got := string(NewKnown("123456").HideJSON([]byte(`{"a":[1234567],"123456":1}`))); got != `{"(hidden)":1,"a":["(hidden)7"]}` {
		t.Errorf("a number becomes %s", got)
	}
	if got := (Known{}).Hide("hush-hush"); got != "hush-hush" {
		t.Errorf("nothing is known, but %q", got)
	}
}
