package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/transporttest"
)

func env(l *transporttest.Live) []string {
	return []string{
		"SKANDHA_UI=" + l.URL, "SKANDHA_UI_TOKEN=" + l.Token, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"LANG=C.UTF-8",
	}
}

func TestChatInPython(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	l := transporttest.Start(t)
	file := filepath.Join(l.Workspace, "a.txt")
	transporttest.Fatal(t, os.WriteFile(file, []byte("x"), 0o600))

	p := foreigntest.Spawn(t, "python", env(l), python, "chat.py")
	p.Say("what is 2+2?\n")
	p.Await("**4**")
	p.Say("delete a.txt\n")
	p.Await("allow it?")
	p.Say("no\n")
	p.Await("(denied by ui-owner)")
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	l.Restart(t)
	p.Say("\n/provider nonsense\ndelete a.txt\ny\n") // each is read when its time has come
	p.Await("(approved by ui-owner)")
	p.Await("deleted")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after the approval: %v", err)
	}
	p.CloseInput()
	if err := p.Ended(); err != nil {
		t.Errorf("at the end of its input: %v\n%s", err, p.Errs())
	}
}

func TestAWrongTokenIsTold(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	l := transporttest.Start(t)
	l.Token = "another-token-that-is-wrong"
	p := foreigntest.Spawn(t, "python", env(l), python, "chat.py")
	if err := p.Ended(); err == nil || !strings.Contains(p.Errs(), "unauthenticated") {
		t.Errorf("ended with %v and %q", err, p.Errs())
	}
}

func TestAMissingTokenIsNamed(t *testing.T) {
	p := foreigntest.Spawn(t, "python", []string{"SKANDHA_UI_TOKEN="}, foreigntest.Need(t, "python3"), "chat.py")
	if err := p.Ended(); err == nil || !strings.Contains(p.Errs(), "SKANDHA_UI_TOKEN is not set") {
		t.Errorf("ended with %v and %q", err, p.Errs())
	}
}

func TestAskByCurl(t *testing.T) {
	foreigntest.Need(t, "curl")
	bash := foreigntest.Need(t, "bash")
	l := transporttest.Start(t)
	file := filepath.Join(l.Workspace, "a.txt")
	transporttest.Fatal(t, os.WriteFile(file, []byte("x"), 0o600))
	ask := func(answer, question string) string {
		t.Helper()
		p := foreigntest.Spawn(t, "shell", env(l), bash, "ask.sh", question)
		p.Say(answer)
		if err := p.Ended(); err != nil {
			t.Errorf("%s ended with %v: %s", question, err, p.Errs())
		}
		return p.Out()
	}
	if got := ask("", "what is 2+2?"); !strings.Contains(got, "**4**") {
		t.Errorf("it answered %q", got)
	}
	if got := ask("n\n", "delete a.txt"); !strings.Contains(got, "not") {
		t.Errorf("after the refusal: %q", got)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	if got := ask("y\n", "delete a.txt"); !strings.Contains(got, "deleted") {
		t.Errorf("after the approval: %q", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after the approval: %v", err)
	}
}
