package mapping_test

import (
	"encoding/json"
	"testing"
	"time"

	"skandha.dev/services/listener/mapping"
)

// Whatever a device sends: no panic, every input is valid, and a process that dies after each
// reading loses and doubles none.
func FuzzReadings(f *testing.F) {
	f.Add(`{"above":30,"hysteresis":2}`, []byte("31\n29\n27\n33"))
	f.Add(`{"on_change":true,"debounce":2}`, []byte("a\na\nb\nb\nb"))
	f.Add(`{"window":3}`, []byte("1\n2\n3\n1e308\n1e308\n-1e308"))
	f.Add(`{"value":"/a/0","below":1}`, []byte(`{"a":[0]}`+"\n{\xff\n[[[[\n"))
	f.Fuzz(func(t *testing.T, rule string, lines []byte) {
		var c struct {
			Above, Below               *float64
			Hysteresis                 float64
			Debounce, Window, Every    int8
			OnChange                   bool `json:"on_change"`
			Value, Template, TextField string
		}
		if json.Unmarshal([]byte(rule), &c) != nil {
			return
		}
		cfg := mapping.Config{
			Session: "s", Above: c.Above, Below: c.Below, Hysteresis: c.Hysteresis, OnChange: c.OnChange, ValueField: c.Value,
			Debounce: time.Duration(c.Debounce) * time.Second, Window: time.Duration(c.Window) * time.Second,
			Every: time.Duration(c.Every) * time.Second, TextTemplate: c.Template, TextField: c.TextField,
		}
		if cfg.Validate() != nil {
			return
		}
		one, stored := newMapper(t, cfg), map[string][]byte{}
		for i, r := range split(lines) {
			want, _ := one.Take(r)
			m := newMapper(t, cfg)
			for _, s := range stored {
				if err := m.Load(s); err != nil {
					t.Fatal(err)
				}
			}
			got, _ := m.Take(r)
			if len(got) != len(want) {
				t.Fatalf("reading %d: %d inputs after a restart, %d without", i, len(got), len(want))
			}
			for j := range got {
				if got[j].ID != want[j].ID || got[j].Text != want[j].Text || got[j].Check() != nil {
					t.Fatalf("reading %d: %+v, want %+v, %v", i, got[j], want[j], got[j].Check())
				}
			}
			for name, s := range m.Changed() {
				stored[name] = s
			}
			r.Again = true
			if again, err := m.Take(r); len(again) > 0 && err == nil && len(got) > 0 {
				t.Fatalf("reading %d again: %+v", i, again)
			}
		}
	})
}

func split(lines []byte) (out []mapping.Reading) {
	begin, second := 0, 0.0
	for i := 0; i <= len(lines) && len(out) < 50; i++ {
		if i == len(lines) || lines[i] == '\n' {
			r := at(second, "")
			r.Data, r.ID = lines[begin:i], time.Duration(second*1e9).String()
			out, begin, second = append(out, r), i+1, second+1
		}
	}
	return out
}
