package senses

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Process says which process of which machine runs a listener: for people, who may have to end it,
// and so that others on the same machine notice that it is dead. Where it cannot be identified it
// never counts as dead.
type Process struct {
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Space is the boot of the machine and the namespace of process ids: in both, a pid has a meaning.
	Space string `json:"space,omitempty"`
	Began string `json:"began,omitempty"` // in clock ticks since the boot; tells it from a later one with its pid
}

// Here is this process.
func Here() Process {
	host, _ := os.Hostname()
	return Process{Host: host, PID: os.Getpid(), Space: space(), Began: began(os.Getpid())}
}

// Dead reports whether the process is known to have ended.
func (p Process) Dead() bool {
	host, _ := os.Hostname()
	if p.PID <= 0 || p.Space == "" || p.Space != space() || p.Host != host {
		return false
	}
	if errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH) {
		return true
	}
	now := began(p.PID) // empty if this user may not know
	return now != "" && p.Began != "" && now != p.Began
}

// String says it to people; empty if nothing is known.
func (p Process) String() string {
	if p.PID == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d on %s", p.PID, p.Host)
}

func space() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + pids
}

// began is field 22 of proc_pid_stat(5). The second field is a name, in parentheses, of any characters.
func began(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}
