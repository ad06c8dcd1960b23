package deps

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"a scheme":  {Config{Index: "ftp://packages.example.com/simple"}, `index has scheme "ftp"`},
		"a path":    {Config{Index: "/srv/packages"}, `index has scheme ""`},
		"an option": {Config{Index: "--pre"}, "index has scheme"},
		"no host":   {Config{Index: "https:///simple"}, "index names no host"},
		"a query":   {Config{Index: "https://packages.example.com/simple?x=1"}, "index has a query"},
		"no URL":    {Config{Index: "https://user:secret@[::1/"}, "index is not a URL"},
		"a proxy":   {Config{Proxy: "socks://proxy.example.com"}, "proxy has scheme"},
		"a timeout": {Config{Timeout: time.Millisecond}, "timeout is 1ms"},
		"a size":    {Config{MaxBytes: 1}, "max_bytes is 1, want at least 1 MiB"},
		"files":     {Config{MaxFiles: 1}, "max_files is 1, want at least 100"},
		"sizes": {
			Config{MaxBytes: 2 << 30, MaxTotalBytes: 1 << 30}, "max_total_bytes is 1073741824, want at least max_bytes",
		},
		"a number":        {Config{MaxSets: -1}, "max_sets is -1"},
		"installations":   {Config{Installs: -1}, "installs is -1, want at least 1"},
		"a time to stay":  {Config{Settle: -1}, "settle is"},
		"a time to fail":  {Config{Remember: -1}, "remember is"},
		"several at once": {Config{MaxSets: -1, Timeout: -1}, "timeout is"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg, nil)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q and no password", err, c.says)
			}
		})
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// The model's words follow "--", as data of a JSON string.
func TestWhatTheInterpreterIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		cfg       Config
		has, lack []string
	}{
		"pip's own index": {
			Config{},
			[]string{`"--isolated"`, `"--only-binary",":all:"`, `"requirements":["a==1"]`},
			[]string{"--index-url", "--trusted-host", "--proxy"},
		},
		"https": {
			Config{Index: "https://packages.example.com/simple"},
			[]string{`"--index-url","https://packages.example.com/simple"`},
			[]string{"--trusted-host"},
		},
		"http": {
			Config{Index: "http://packages.example.com:8080/simple"},
			[]string{`"--trusted-host","packages.example.com:8080"`},
			nil,
		},
		"through a proxy": {
			Config{Proxy: "http://proxy.example.com:3128"}, []string{`"--proxy","http://proxy.example.com:3128"`}, nil,
		},
		"at most so large": {
			Config{MaxBytes: 5 << 20, MaxFiles: 300}, []string{`"max_bytes":5242880,"max_files":300`, driver.Packages}, nil,
		},
	} {
		args, err := c.cfg.withDefaults().args(want(t, "a==1"))
		if err != nil {
			t.Fatal(err)
		}
		if len(args) != 5 || args[0] != "-I" || args[1] != "-B" || args[2] != "-c" || args[3] != program {
			t.Errorf("%s: the interpreter is given %q", name, args[:3])
		}
		for _, s := range c.has {
			if !strings.Contains(args[4], s) {
				t.Errorf("%s: %s does not say %s", name, args[4], s)
			}
		}
		for _, s := range c.lack {
			if strings.Contains(args[4], s) {
				t.Errorf("%s: %s says %s", name, args[4], s)
			}
		}
	}
}

// Of a sandbox's output only known lines are used.
func TestWhatASandboxPrintsIsBounded(t *testing.T) {
	var forwarded []string
	l := &lines{progress: func(s string) { forwarded = append(forwarded, s) }}
	for range 1000 {
		l.line("collecting a")
	}
	if len(forwarded) != maxReported {
		t.Errorf("%d lines are forwarded, want %d", len(forwarded), maxReported)
	}
	l.reported, forwarded = 0, nil
	for _, s := range []string{
		"collecting a b", "collecting \x1b[31m", "collecting", "hello", "downloading http://x/y (1 kB)",
		"downloading " + strings.Repeat("x", 300),
		"installing -1 packages", "downloading a-1.0+x-py3-none-any.whl (1.5 MB)", "downloading a.whl (712 bytes)",
		"collecting Foo.bar_1",
	} {
		l.line(s)
	}
	if len(forwarded) != 3 {
		t.Errorf("%q are forwarded, want the three that are progress", forwarded)
	}
	l.line("failed made_up: " + strings.Repeat("\u202e", 1000))
	if l.failure.Code != Failed || len(l.failure.Detail) > maxDetail || strings.Trim(l.failure.Detail, "?") != "" {
		t.Errorf("a failure is read as %+v", l.failure)
	}
}

// Only what the service itself would run, from the configured index, is recognized as an installation.
func TestInstallationsAreRecognized(t *testing.T) {
	own := Config{Index: "https://packages.example.com/simple"}
	args, err := own.withDefaults().args(want(t, "numpy>=2", "pandas[excel]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Recognize(args); err != nil {
		t.Errorf("the service's own arguments: %v", err)
	}
	if err := (Config{}).Recognize(args); err == nil {
		t.Error("another index is accepted")
	}
	input := args[len(args)-1]
	type list = []string
	replace := func(old, text string) func(list) list {
		return func(a list) list { a[4] = strings.Replace(input, old, text, 1); return a }
	}
	for about, change := range map[string]func(list) list{
		"another program":      func(a list) list { a[3] = "print(1)"; return a },
		"more arguments":       func(a list) list { return append(a, a[4]) },
		"no arguments":         func(list) list { return nil },
		"no requirements":      func(a list) list { a[4] = `{}`; return a },
		"a flag of pip":        replace(`"-vv"`, `"-v"`),
		"a requirement by URL": replace("numpy", "x@http://x"),
		"another form":         replace("numpy", "NumPy"),
		"a second list":        replace("{", `{"requirements":["x"],`),
		"a larger bound":       replace(`"max_bytes":`, `"max_bytes":1`),
	} {
		if err := own.Recognize(change(slices.Clone(args))); err == nil {
			t.Errorf("%s is accepted", about)
		}
	}
}
