package mapping_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/mapping"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func number(n float64) *float64 { return &n }

func newMapper(t testing.TB, cfg mapping.Config) *mapping.Mapper {
	t.Helper()
	if cfg.Session == "" && cfg.SessionLevel == 0 {
		cfg.Session = "house"
	}
	m, err := mapping.New("rule", cfg, mapping.Source{Kind: "mqtt", Listener: "home", ByName: true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// at is a reading some seconds after the start.
func at(second float64, data string) mapping.Reading {
	return mapping.Reading{
		Name: "house/temp", Data: []byte(data), Time: start.Add(time.Duration(second * float64(time.Second))),
		ID: fmt.Sprint(second, data),
	}
}

func texts(inputs []contract.Input) (out []string) {
	for _, in := range inputs {
		out = append(out, in.Text)
	}
	return out
}

// play takes readings and then lets the time pass; it returns the texts of the inputs.
func play(m *mapping.Mapper, until float64, readings ...mapping.Reading) (out []string, dropped error) {
	for _, r := range readings {
		inputs, err := m.Take(r)
		out, dropped = append(out, texts(inputs)...), errors.Join(dropped, err)
	}
	inputs, err := m.Due(at(until, "").Time)
	return append(out, texts(inputs)...), errors.Join(dropped, err)
}

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		cfg      mapping.Config
		readings []mapping.Reading
		until    float64
		want     []string
		drop     error
	}{
		"without a condition each reading is an input": {
			readings: []mapping.Reading{at(0, "a"), at(1, "a"), at(2, "")},
			want:     []string{"house/temp: a", "house/temp: a", "house/temp: (empty)"},
		},
		"above fires once until the value has come back by the hysteresis": {
			cfg:      mapping.Config{Above: number(30), Hysteresis: 2},
			readings: []mapping.Reading{at(0, "29"), at(1, "31"), at(2, "33"), at(3, "29"), at(4, "31"), at(5, "28"), at(6, "30.5")},
			want:     []string{"house/temp is 31, above 30", "house/temp is 30.5, above 30"},
		},
		"a band has two sides": {
			cfg:      mapping.Config{Above: number(30), Below: number(10)},
			readings: []mapping.Reading{at(0, "5"), at(1, "4"), at(2, "20"), at(3, "40")},
			want:     []string{"house/temp is 5, below 10", "house/temp is 40, above 30"},
		},
		"a pointer finds the value": {
			cfg:      mapping.Config{ValueField: "/t/0", Above: number(1)},
			readings: []mapping.Reading{at(0, `{"t":[2]}`), at(1, `{"t":[]}`)},
			want:     []string{"house/temp is 2, above 1"}, drop: mapping.ErrUnreadable,
		},
		"only changes": {
			cfg:      mapping.Config{OnChange: true},
			readings: []mapping.Reading{at(0, "open"), at(1, "open"), at(2, "closed"), at(3, "open")},
			want:     []string{"house/temp is now open", "house/temp is now closed, was open", "house/temp is now open, was closed"},
		},
		"a new value must hold": {
			cfg:      mapping.Config{OnChange: true, Debounce: 5 * time.Second},
			readings: []mapping.Reading{at(0, "a"), at(6, "b"), at(7, "a"), at(8, "c"), at(12, "c")}, until: 13,
			want: []string{"house/temp is now a", "house/temp is now c, was a"},
		},
		"a crossing must hold": {
			cfg:      mapping.Config{Above: number(30), Debounce: 5 * time.Second},
			readings: []mapping.Reading{at(0, "31"), at(4, "29"), at(5, "32"), at(9, "33")}, until: 10,
			want: []string{"house/temp is 32, above 30"},
		},
		"a crossing that has not held yet is none": {
			cfg:      mapping.Config{Above: number(30), Debounce: 5 * time.Second},
			readings: []mapping.Reading{at(0, "31")}, until: 4.9,
		},
		"a rate limit drops, and a crossing that holds is an input afterwards": {
			cfg:      mapping.Config{Above: number(30), Every: 10 * time.Second},
			readings: []mapping.Reading{at(0, "31"), at(1, "29"), at(2, "31"), at(3, "32"), at(11, "33")},
			want:     []string{"house/temp is 31, above 30", "house/temp is 33, above 30"}, drop: mapping.ErrLimited,
		},
		"a debounced crossing waits for the rate limit": {
			cfg:      mapping.Config{Above: number(30), Debounce: time.Second, Every: 10 * time.Second},
			readings: []mapping.Reading{at(0, "31"), at(2, "29"), at(3, "31"), at(5, "31")}, until: 11,
			want: []string{"house/temp is 31, above 30", "house/temp is 31, above 30"}, drop: mapping.ErrLimited,
		},
		"a window is one input": {
			cfg:      mapping.Config{Window: 10 * time.Second},
			readings: []mapping.Reading{at(0, "1"), at(1, "3"), at(9, "2"), at(10, "7")}, until: 20,
			want: []string{
				"house/temp: 3 readings in 10s: mean 2, min 1, max 3, first 1, last 2",
				"house/temp: 1 readings in 10s: mean 7, min 7, max 7, first 7, last 7",
			},
		},
		"the mean of a window is judged": {
			cfg:      mapping.Config{Window: time.Second, Above: number(5)},
			readings: []mapping.Reading{at(0, "1"), at(0.5, "5"), at(1, "9"), at(2, "9"), at(3, "1")}, until: 4,
			want: []string{"house/temp: 1 readings in 1s: mean 9, above 5, min 9, max 9, first 9, last 9"},
		},
		"what is no number crosses nothing": {
			cfg:      mapping.Config{Above: number(0)},
			readings: []mapping.Reading{at(0, "NaN"), at(1, "+Inf"), at(2, "warm"), at(3, "\xff"), at(4, "true")}, drop: mapping.ErrUnreadable,
		},
		"a template has the facts": {
			cfg:      mapping.Config{TextTemplate: `{{index .levels 1}}: {{.value}} {{.data.u}} ({{.crossed}})`, ValueField: "/v", Above: number(1)},
			readings: []mapping.Reading{at(0, `{"v":2,"u":"°C"}`)},
			want:     []string{"temp: 2 °C (above 1)"},
		},
		"a text field is the text": {
			cfg:      mapping.Config{TextField: "/say"},
			readings: []mapping.Reading{at(0, `{"say":"hello"}`), at(1, `{"say":1}`)},
			want:     []string{"hello"}, drop: mapping.ErrUnreadable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := play(newMapper(t, c.cfg), c.until, c.readings...)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if (c.drop == nil) != (err == nil) || c.drop != nil && !errors.Is(err, c.drop) {
				t.Errorf("dropped: %v, want %v", err, c.drop)
			}
		})
	}
}

func TestAnInputSaysWhereItComesFrom(t *testing.T) {
	m := newMapper(t, mapping.Config{SessionLevel: 2, SessionPrefix: "room-", Agent: "butler"})
	r := at(0, "x")
	r.Name = "house/living room/window\x01"
	in, err := m.Take(r)
	if err != nil || len(in) != 1 {
		t.Fatal(in, err)
	}
	if got := in[0]; got.Session != "room-living-20room" && !strings.HasPrefix(string(got.Session), "room-living") ||
		got.Agent != "butler" || got.Origin != "mqtt:house/living room/window" || got.Source != "mqtt:home" || got.Check() != nil {
		t.Errorf("%+v, %v", got, got.Check())
	}
	r.Name = "house"
	if in, err := m.Take(r); !errors.Is(err, mapping.ErrUnreadable) {
		t.Errorf("a name with one level: %v, %v", in, err)
	}
}

// A process may die between storing an input, its state, and confirming the reading.
func TestAReadingThatIsTakenAgainIsTheSameInput(t *testing.T) {
	cfg := mapping.Config{OnChange: true}
	m := newMapper(t, cfg)
	if _, err := m.Take(at(0, "a")); err != nil {
		t.Fatal(err)
	}
	before := m.Changed()
	first, err := m.Take(at(1, "b"))
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	after := m.Changed()

	restored := func(states map[string][]byte) *mapping.Mapper {
		m := newMapper(t, cfg)
		for _, s := range states {
			if err := m.Load(s); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	again := at(1, "b")
	again.Again, again.Time = true, again.Time.Add(time.Minute)
	if second, err := restored(before).Take(again); err != nil || len(second) != 1 || second[0].ID != first[0].ID || second[0].Text != first[0].Text {
		t.Errorf("before its state was stored: %+v, %v; want the same input", second, err)
	}
	if second, err := restored(after).Take(again); !errors.Is(err, mapping.ErrTaken) || len(second) != 0 {
		t.Errorf("after its state was stored: %+v, %v; want none", second, err)
	}
}

func TestEqualReadingsAreDifferentInputs(t *testing.T) {
	m := newMapper(t, mapping.Config{})
	seen := map[string]bool{}
	for range 5 {
		r := at(0, "ding")
		in, err := m.Take(r)
		if err != nil || len(in) != 1 || seen[in[0].ID] {
			t.Fatalf("%+v, %v; want another input", in, err)
		}
		seen[in[0].ID] = true
	}
}

func TestStateOutlivesARestart(t *testing.T) {
	for name, cfg := range map[string]mapping.Config{
		"fired": {Above: number(30)}, "pending": {Above: number(30), Debounce: 5 * time.Second}, "window": {Window: 5 * time.Second},
		"limited": {Every: time.Minute}, "change": {OnChange: true},
	} {
		t.Run(name, func(t *testing.T) {
			readings := []mapping.Reading{at(0, "31"), at(1, "32"), at(2, "33"), at(3, "20"), at(4, "35"), at(6, "36")}
			want, _ := play(newMapper(t, cfg), 20, readings...)
			var got []string
			stored := map[string][]byte{}
			for i := range len(readings) + 1 { // a process for each reading, and one for the end
				m := newMapper(t, cfg)
				for _, s := range stored {
					if err := m.Load(s); err != nil {
						t.Fatal(err)
					}
				}
				if i < len(readings) {
					inputs, _ := m.Take(readings[i]) // what is dropped is not of interest
					got = append(got, texts(inputs)...)
				} else {
					inputs, _ := m.Due(at(20, "").Time)
					got = append(got, texts(inputs)...)
				}
				for name, s := range m.Changed() {
					stored[name] = s
				}
			}
			if !slices.Equal(got, want) || len(want) == 0 {
				t.Errorf("with restarts %q, without %q", got, want)
			}
		})
	}
}

func TestRetainedMessagesCountOnceForEachValue(t *testing.T) {
	m := newMapper(t, mapping.Config{})
	for i, c := range []struct {
		data     string
		retained bool
		inputs   int
	}{{"on", true, 1}, {"on", true, 0}, {"on", false, 1}, {"off", true, 1}, {"off", true, 0}} {
		r := at(float64(i), c.data)
		r.Retained = c.retained
		if in, _ := m.Take(r); len(in) != c.inputs {
			t.Errorf("reading %d: %d inputs, want %d", i, len(in), c.inputs)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	m := newMapper(t, mapping.Config{MaxNames: 2})
	for i, want := range []error{nil, nil, mapping.ErrNames} {
		r := at(0, "x")
		r.Name = fmt.Sprint(i)
		if _, err := m.Take(r); !errors.Is(err, want) {
			t.Errorf("name %d: %v, want %v", i, err, want)
		}
	}
}

func TestWrongConfigurationsNameTheField(t *testing.T) {
	for want, cfg := range map[string]mapping.Config{
		"session and session_level": {}, "session_level is -1": {SessionLevel: -1}, "session_prefix requires": {Session: "s", SessionPrefix: "p"},
		"value_field": {Session: "s", ValueField: "x"}, "text_field: ": {Session: "s", TextField: "x"},
		"text_template: ":           {Session: "s", TextTemplate: "{{"},
		"text_field and text_templ": {Session: "s", TextField: "/a", TextTemplate: "b"},
		"hysteresis requires":       {Session: "s", Hysteresis: 1}, "hysteresis is -1": {Session: "s", Above: number(1), Hysteresis: -1},
		"below and above":     {Session: "s", Above: number(1), Below: number(0), Hysteresis: 1},
		"on_change and above": {Session: "s", Above: number(1), OnChange: true},
		"debounce requires":   {Session: "s", Debounce: time.Second},
		"window takes no":     {Session: "s", Window: time.Second, Every: time.Second},
		"every is -1s":        {Session: "s", Every: -time.Second}, "max_names": {Session: "s", MaxNames: -1},
		"agent or mode": {Session: "s", Mode: "shout"}, "session: ": {Session: "a b"},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
