package sandboxtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// host has the targets on the host: canaries, and settings.
type host struct {
	token    string   // part of every canary's name or content
	files    []string // contain the token
	ports    []int    // TCP, of all addresses
	datagram int      // UDP
	read     chan int // the numbers of the host's own datagrams, as the canary reads them
	sent     int      // number of the last one
	addrs    []string // addresses of this host, including gateways of engines
	abstract string   // name of an abstract socket
	socket   string   // path of a socket
	visits   atomic.Pointer[string]
	settings map[string]string // path → content that must not change
}

// hostSettings are files with settings of the host's kernel.
var hostSettings = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
	"/proc/sys/kernel/modprobe", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/panic", "/proc/sys/kernel/poweroff_cmd", "/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/drop_caches", "/proc/sys/vm/swappiness",
	"/proc/sys/fs/file-max", "/proc/sys/fs/suid_dumpable", "/proc/sys/net/ipv4/ip_forward", "/sys/kernel/uevent_helper",
	"/proc/modules", "/proc/swaps",
}

// newHost sets up the canaries until the test ends.
func newHost(t *testing.T, elsewhere func(*testing.T, string) net.Listener) *host {
	h := &host{token: "canary-" + token(), settings: map[string]string{}}
	h.placeFiles(t)
	t.Setenv("SKANDHA_SANDBOXTEST_SECRET", h.token)
	h.listen(t)
	h.rest(t)
	if elsewhere != nil {
		l := elsewhere(t, "0.0.0.0:0")
		h.ports = append(h.ports, l.Addr().(*net.TCPAddr).Port)
		h.accept(t, l)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "86400")
	sleeper.Args[0] = h.token
	if err := sleeper.Start(); err != nil {
		t.Fatalf("starting the canary process: %v", err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill() // it ends with the test's context anyway
		_ = sleeper.Wait()
	})
	for _, path := range hostSettings {
		if b, err := os.ReadFile(path); err == nil {
			h.settings[path] = string(b)
		}
	}
	return h
}

// stays reports whether a setting is unchanged. In the lists of modules and swaps every
// entry must still exist; usage counts and additional entries change by themselves.
func stays(path, was, is string) bool {
	if path != "/proc/modules" && path != "/proc/swaps" {
		return was == is
	}
	for line := range strings.Lines(was) {
		if name, _, _ := strings.Cut(line, " "); !strings.HasPrefix(is, name) && !strings.Contains(is, "\n"+name) {
			return false
		}
	}
	return true
}

// placeFiles puts the token into files where a careless mount would show them.
func (h *host) placeFiles(t *testing.T) {
	t.Helper()
	home, _ := os.UserHomeDir()
	wd, _ := os.Getwd()
	for _, dir := range []string{
		os.TempDir(), "/tmp", "/var/tmp", "/run", "/dev/shm", "/opt", "/srv", "/mnt", "/var/lib", home, t.TempDir(), wd,
	} {
		path := filepath.Join(dir, "."+h.token)
		if dir == "" || os.WriteFile(path, []byte(h.token), 0o644) != nil {
			continue // not every user may write everywhere
		}
		t.Cleanup(func() { _ = os.Remove(path) }) // os.TempDir may be /tmp, and so there twice
		h.files = append(h.files, path)
	}
	if len(h.files) < 3 {
		t.Fatalf("only these canary files could be placed: %q", h.files)
	}
}

// listen opens the listeners that must not get visitors.
func (h *host) listen(t *testing.T) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0") // not the bus's or Redis's port, which may be in use
	if err != nil {
		t.Fatalf("opening a canary listener: %v", err)
	}
	h.ports = append(h.ports, l.Addr().(*net.TCPAddr).Port)
	h.accept(t, l)
}

// rest opens the canaries other than TCP, and lists the addresses.
func (h *host) rest(t *testing.T) {
	t.Helper()
	udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", ":0")
	if err != nil {
		t.Fatalf("opening a canary socket: %v", err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	h.datagram, h.read = udp.LocalAddr().(*net.UDPAddr).Port, make(chan int, 16)
	go func() {
		for b := make([]byte, 64); ; {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			if string(b[:n]) == "probe" {
				h.visited("a datagram from " + from.String())
			} else if number, own := strings.CutPrefix(string(b[:n]), h.token); own {
				n, _ := strconv.Atoi(number) // the host wrote it
				h.read <- n
			}
		}
	}()
	h.abstract, h.socket = h.token, filepath.Join(os.TempDir(), h.token[:20]+".sock")
	for _, name := range []string{"@" + h.abstract, h.socket} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", name)
		if err != nil {
			t.Fatalf("opening a canary socket: %v", err)
		}
		h.accept(t, l)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatalf("listing the host's addresses: %v", err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			h.addrs = append(h.addrs, ip.IP.String())
		}
	}
}

// accept records visitors that send "probe"; other programs also scan ports.
func (h *host) accept(t *testing.T, l net.Listener) {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }() // its message has been read
				b := make([]byte, 5)
				if n, _ := c.Read(b); string(b[:n]) == "probe" {
					h.visited(fmt.Sprintf("a connection to %s from %q", l.Addr(), c.RemoteAddr()))
				}
			}()
		}
	}()
}

func (h *host) visited(what string) { h.visits.CompareAndSwap(nil, &what) }

// settle returns when the canary has read all datagrams that were sent before: they wait in
// one queue, and the last one in it is the host's own. (Connections need no such thing: a
// client notices that it is connected.)
func (h *host) settle() error {
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: h.datagram})
	if err != nil {
		return fmt.Errorf("querying the canary's progress: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing is read from it
	h.sent++
	for range 50 { // a full queue drops datagrams
		if _, err := fmt.Fprintf(c, "%s%d", h.token, h.sent); err != nil {
			return fmt.Errorf("querying the canary's progress: %w", err)
		}
		for timeout := time.After(200 * time.Millisecond); ; {
			select {
			case n := <-h.read:
				if n == h.sent {
					return nil
				}
				continue
			case <-timeout:
			}
			break
		}
	}
	return errors.New("the canary for datagrams has stopped reading")
}

// unharmed reports changes of the host.
func (h *host) unharmed() error {
	errs := []error{h.settle()}
	if v := h.visits.Load(); v != nil {
		errs = append(errs, fmt.Errorf("a canary saw %s", *v))
	}
	for _, path := range h.files {
		if b, err := os.ReadFile(path); err != nil || string(b) != h.token {
			errs = append(errs, fmt.Errorf("the canary file %s has %q (%w)", path, b, err))
		}
	}
	for path, want := range h.settings {
		if b, err := os.ReadFile(path); err != nil || !stays(path, want, string(b)) {
			errs = append(errs, fmt.Errorf("%s on the host is %q (%w), it was %q", path, b, err, want))
		}
	}
	return errors.Join(errs...)
}
