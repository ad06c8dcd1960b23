package sandbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/test/depstest"
	"skandha.dev/services/test/natstest"
)

// onBubblewrap starts a service with bubblewrap, and with packages from the index.
func onBubblewrap(t *testing.T, index string) *core {
	t.Helper()
	d := bubbles(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	works(t, d)
	s := natstest.Start(t)
	c := &core{t: t, server: s, bus: natstest.Connect(t, s)}
	var err error
	if c.caller, err = c.bus.NewCaller(); err != nil {
		t.Fatal(err)
	}
	var packages sandbox.Packages
	if index != "" {
		if packages, err = deps.New(deps.Config{Index: index, Log: natstest.Logger(t)}, d); err != nil {
			t.Fatal(err)
		}
	}
	c.instance = c.serve(sandbox.Config{Warm: -1}, d, packages)
	return c
}

// Requested packages are installed from the index and stay for the session with its files,
// and the sandbox stays offline.
func TestPackagesComeFromTheIndexAndTheSandboxStaysOffline(t *testing.T) {
	index := depstest.New(t,
		depstest.Wheel{Name: "greeting", Version: "1.2", Files: map[string]string{"greeting.py": "text = 'hello'\n"}},
		depstest.Wheel{
			Name: "shout", Version: "2.0",
			Files:    map[string]string{"shout.py": "import greeting\ntext = greeting.text.upper()\n"},
			Requires: []string{"greeting>=1"},
		},
	)
	s := onBubblewrap(t, index.Listen("127.0.0.1:0")).session("s")
	s.python("open('kept.txt', 'w').write('kept')")
	run := func(code string, packages ...string) ran {
		t.Helper()
		a := args{"code": code}
		if packages != nil {
			a["dependencies"] = packages
		}
		return s.decode(s.call("python:execute", a))
	}
	if out := run("import shout; [shout.text, open('kept.txt').read()]",
		"shout"); string(out.Result) != `["HELLO","kept"]` || len(out.Packages) != 1 {
		t.Fatalf("%+v", out)
	}
	asked := len(index.Requests())
	if out := run("import greeting; greeting.text"); string(out.Result) != `"hello"` || len(index.Requests()) != asked {
		t.Errorf("a later call: %+v, the index was asked %d times more", out, len(index.Requests())-asked)
	}
	if out := run("import urllib.request as u\ntry: u.urlopen('http://127.0.0.1:9/', timeout=2)\n" +
		"except OSError as e: print('offline')"); !strings.Contains(out.Stdout, "offline") {
		t.Errorf("the sandbox has a network: %+v", out)
	}
	if r := s.call("python:execute", args{"code": "1", "dependencies": []string{"nowhere"}}); r.Success ||
		!strings.Contains(r.Error.Message, "nowhere") {
		t.Errorf("a package that is not there: %+v", r)
	}
	if r := s.call("python:execute", args{"code": "1", "dependencies": []string{"--index-url=http://evil"}}); r.Success ||
		r.Error.Code != "invalid_arguments" {
		t.Errorf("a flag: %+v", r)
	}
}

// Data analysis as a model does it: the open figure is handed to the user.
func TestAPlotBecomesAnArtifact(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import matplotlib, pandas").Run(); err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal("NOT TESTED: matplotlib and pandas are not installed (Debian: python3-matplotlib, python3-pandas)")
		}
		t.Skip("NOT TESTED: matplotlib and pandas are not installed (Debian: python3-matplotlib, python3-pandas)")
	}
	c := onBubblewrap(t, "")
	out := c.session("s").python("import logging; logging.basicConfig(level=logging.INFO)\nimport pandas as pd\n" +
		"import matplotlib.pyplot as plt\nd = pd.DataFrame({'x': range(4)})\nd.assign(y=d.x**2).plot(x='x')\n" +
		"int((d.x**2).sum())")
	if string(out.Result) != "14" || len(out.Artifacts) != 1 || out.Artifacts[0].Path != "out/figure-1.png" ||
		out.Artifacts[0].MediaType != "image/png" {
		t.Fatalf("%+v", out)
	}
	if strings.Contains(out.Stderr, "fontManager") {
		t.Errorf("the first plot makes a list of the fonts: %s", out.Stderr)
	}
	picture, err := c.bus.GetArtifact(t.Context(), out.Artifacts[0].Ref)
	if err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG\r\n")) || int64(len(picture)) != out.Artifacts[0].Bytes {
		t.Errorf("%d bytes, %v", len(picture), err)
	}
}
