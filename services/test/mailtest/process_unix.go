//go:build unix

package mailtest

import (
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// killGroup kills a server and all its processes.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails only if it has ended by itself
}

func userOf(tb testing.TB, name string) (uid, gid int) {
	tb.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid) // numbers on Unix
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}
