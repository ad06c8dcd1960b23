package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runIn runs a command in a working directory, with more environment; ~ is its home.
func runIn(t *testing.T, dir string, env []string, args ...string) (out string, code int, home string) {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = dir
	home = strings.TrimPrefix(cmd.Env[0], "HOME=")
	for _, v := range env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(v, "~", home))
	}
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode(), home
}

func TestCommandsThatLookStartNothing(t *testing.T) {
	for _, line := range []string{
		"status", "sessions", "sessions show x", "tail", "tools", "plugins", "plugins order", "hooks", "artifacts", "ui",
		"env",
	} {
		dir := t.TempDir()
		out, code, home := runIn(t, dir, nil, strings.Fields(line)...)
		want := "no system runs on " + filepath.Join(home, ".local/share/skandha") + "; start one (make run"
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %s", line, code, out)
		}
		for _, d := range []string{dir, home} {
			if files, err := os.ReadDir(d); err != nil || len(files) > 0 {
				t.Errorf("%s left %v in %s, %v", line, files, d, err)
			}
		}
	}
}

func TestTheDoctorCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	for data, want := range map[string]string{
		filepath.Join(dir, "a", "b"): "created at the first start", dir: "",
	} {
		if f := (&globals{Data: data}).dataFinding(); !f.ok || f.advice != want {
			t.Errorf("%s: %+v", data, f)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("it left %v, %v", files, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{file, filepath.Join(file, "data")} {
		if f := (&globals{Data: data}).dataFinding(); f.ok || !strings.Contains(f.advice, "--data DIR") {
			t.Errorf("%s: %+v", data, f)
		}
	}
}

func TestTheSystemIsFound(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	data := filepath.Join(dir, ".data")
	upOn(t, data, "--ui", "off")
	share := t.TempDir()
	upOn(t, filepath.Join(share, "skandha"), "--ui", "off")
	const away = "nats://secret@127.0.0.1:1"
	for about, c := range map[string]struct {
		env  []string
		args []string
		want string
		code int
	}{
		"in the working directory": {nil, []string{"status"}, "agents [main]", 0},
		"here and on the default directory": {
			[]string{"XDG_DATA_HOME=" + share},
			[]string{"status"},
			"another runs on " + share + "/skandha; for that one add --data", 0,
		},
		"a flag wins over SKANDHA_NATS": {
			[]string{"SKANDHA_NATS=" + away}, []string{"status", "--data", data}, "agents [main]", 0,
		},
		"a directory of the environment on which one runs": {
			[]string{"SKANDHA_NATS=" + away, "SKANDHA_DATA=" + data}, []string{"status"}, "agents [main]", 0,
		},
		"one runs elsewhere": {nil, []string{"status", "--data", other}, "one runs on .data; add --data .data", 1},
		"an unknown agent": {
			nil, []string{"ask", "-a", "nobody", "hello"}, "unknown agent nobody; the agents are main", 1,
		},
		"a flag for a separate system": {
			nil, []string{"ask", "--provider", "offline", "hello"}, "--provider: only for a system that this command starts", 1,
		},
		"a time limit": {nil, []string{"ask", "--timeout", "1ms", "hello"}, "no answer within 1ms", 4},
		"the bus is away": {
			[]string{"SKANDHA_NATS=" + away}, []string{"ask", "--timeout", "100ms", "hello"}, "nats://127.0.0.1:1", 4,
		},
		"no command is chat": {nil, nil, "", 0},
		"up takes the default directory": {
			[]string{"XDG_DATA_HOME=" + share}, []string{"up"}, "join it with: skandha chat --data " + share + "/skandha", 1,
		},
		"up ignores SKANDHA_NATS": {
			[]string{"SKANDHA_NATS=" + away}, []string{"up", "--data", data}, "join it with: skandha chat --data " + data, 1,
		},
		"a bus that is not for up":  {nil, []string{"up", "--nats", away}, "--listen HOST:PORT", 1},
		"an address with the token": {nil, []string{"up", "--data", other, "--listen", away}, "nats://xxxxx@127.0.0.1:1", 1},
	} {
		out, code, _ := runIn(t, dir, c.env, c.args...)
		if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "secret") {
			t.Errorf("%s: exit code %d\n%s", about, code, out)
		}
	}
	if out, code, _ := runIn(t, dir, nil, "sessions"); code != 0 || strings.Contains(out, "nobody") {
		t.Errorf("an unknown agent has a session: %d %s", code, out)
	}
}

func TestDataAmongTheConfigurationIsStillFound(t *testing.T) {
	home := t.TempDir()
	old := filepath.Join(home, "config", "skandha")
	if err := os.MkdirAll(filepath.Join(old, "nats"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, _, _ := runIn(t, t.TempDir(), []string{"XDG_CONFIG_HOME=" + filepath.Dir(old)}, "status")
	if !strings.Contains(out, "the data is in "+old) || !strings.Contains(out, "no system runs on "+old) {
		t.Errorf("%s", out)
	}
	out, _, _ = runIn(t, t.TempDir(), []string{"XDG_CONFIG_HOME=" + filepath.Dir(old), "XDG_DATA_HOME=" + home}, "status")
	if !strings.Contains(out, "the data is in "+old) {
		t.Errorf("%s", out)
	}
	if err := os.MkdirAll(filepath.Join(home, "skandha", "nats"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, _, _ = runIn(t, t.TempDir(), []string{"XDG_CONFIG_HOME=" + filepath.Dir(old), "XDG_DATA_HOME=" + home}, "status")
	if strings.Contains(out, "the data is in") ||
		!strings.Contains(out, "no system runs on "+filepath.Join(home, "skandha")) {
		t.Errorf("%s", out)
	}
}

// What `make run` left is found again, but not what came with somebody's files.
func TestADataDirectoryAtRestIsFound(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, ".data")
	if err := os.MkdirAll(filepath.Join(data, "nats"), 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o700: "no system runs on .data;", 0o755: "no system runs on /"} {
		if err := os.Chmod(data, mode); err != nil {
			t.Fatal(err)
		}
		if out, code, _ := runIn(t, dir, nil, "status"); code != 1 || !strings.Contains(out, want) {
			t.Errorf("mode %o: exit code %d, want %q\n%s", mode, code, want, out)
		}
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code, _ := runIn(t, below, nil, "status"); code != 1 ||
		!strings.Contains(out, "no system runs on ../../.data;") {
		t.Errorf("from below: exit code %d\n%s", code, out)
	}
	out, code, _ := runIn(t, dir, nil, "ask", "what is 2+3?")
	if code != 0 || !strings.Contains(out, "started one for this question on .data") || !strings.Contains(out, "5") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestHelpShowsWhatACommandUses(t *testing.T) {
	for line, want := range map[string]struct {
		has, hasNot []string
		code        int
	}{
		"status --help":     {[]string{"--json", "--data", "--help-all"}, []string{"--provider", "--sandbox-"}, 0},
		"status --help-all": {[]string{"--json", "--data"}, []string{"--provider", "--sandbox-"}, 0},
		"ask --help":        {[]string{"--timeout"}, []string{"--provider", "--sandbox-"}, 0},
		"ask --help-all":    {[]string{"--timeout", "--provider", "--sandbox-"}, nil, 0},
		"--help":            {[]string{"status", "--data"}, []string{"--provider"}, 0},
		"sessions show":     {[]string{`Run "skandha sessions show --help"`}, []string{"--data"}, 2},
		"sessions rebuild":  {[]string{"--all", `Run "skandha sessions rebuild --help"`}, []string{"--data"}, 2},
		"stauts":            {[]string{"stauts", `Run "skandha --help"`}, []string{"--data"}, 2},
	} {
		out, code, _ := runIn(t, t.TempDir(), nil, strings.Fields(line)...)
		if code != want.code || code != 0 && strings.Count(out, "\n") != 2 {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
		for _, w := range want.has {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %s in\n%s", line, w, out)
			}
		}
		for _, w := range want.hasNot {
			if strings.Contains(out, w) {
				t.Errorf("%s: %s in\n%s", line, w, out)
			}
		}
	}
	if out, code, _ := runIn(t, t.TempDir(), nil, "ask", " "); code != 2 || !strings.Contains(out, "the text is empty") {
		t.Errorf("an empty text: exit code %d\n%s", code, out)
	}
	out, _, _ := runIn(t, t.TempDir(), nil, "status", "--help")
	if strings.Index(out, "--json") > strings.Index(out, "--data") {
		t.Errorf("its own flags are not first:\n%s", out)
	}
}
