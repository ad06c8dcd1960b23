package toolrunner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner"
)

func TestAWorkspaceHoldsNothingThatIsProtected(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"data/nats", "data/workspace/sub", "ws/.data", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ws", "skandha.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"link-to-ws": "ws", "link-to-nats": "data/nats", "link-to-config": "ws/skandha.yaml",
	} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct{ workspace, protected, want string }{
		{"elsewhere", "data", ""},
		{"data/workspace", "data", ""},
		{"data/workspace/sub", "data", ""},
		{"ws", "nowhere/at-all", ""},
		{"elsewhere", "ws/skandha.yaml", ""},
		{"ws", "ws/.data", "contains ws/.data"},
		{".", "data", "contains data"},
		{"ws", "ws", "contains ws"},
		{"ws", "ws/skandha.yaml", "contains ws/skandha.yaml"},
		{"ws", "ws/not-made-yet", "contains ws/not-made-yet"},
		{"ws", "link-to-config", "contains link-to-config"},
		{"link-to-ws", "ws/.data", "contains ws/.data"},
		{"data/nats", "data", "is inside data"},
		{"link-to-nats", "data", "is inside data"},
	} {
		err := toolrunner.Config{WorkspaceDir: c.workspace, Protected: []string{c.protected}}.CheckWorkspace()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("workspace %s, protected %s: %v, want %q", c.workspace, c.protected, err, c.want)
		}
	}
}
