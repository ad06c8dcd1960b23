//go:build linux

package bwrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"skandha.dev/services/sandbox/driver"
)

// Report implements driver.Driver.
func (d *Driver) Report(ctx context.Context) (driver.Report, error) {
	h, err := d.look(ctx)
	if err != nil {
		return driver.Report{}, err
	}
	r := driver.Report{
		Driver:  "bwrap",
		Version: "bubblewrap " + h.version,
		Isolation: "Kernel namespaces, seccomp and no capabilities, on the host's own kernel, Python and /usr: " +
			"weaker than a container, and not for tenants who do not trust each other.",
		Python:   h.python.version,
		Platform: strings.Join([]string{"bwrap", h.python.version, h.python.abi, h.python.prefix}, " "),
		Enforced: []string{"workspace"},
	}
	r.Missing = append(r.Missing, "image: sandboxes see the host's /usr, read-only")
	if d.root {
		r.Isolation += " Each sandbox runs under a separate user id."
	} else {
		r.Missing = append(r.Missing,
			"quotas that the kernel keeps per user: sandboxes run under the service's own user, "+
				"since only root can give them separate users")
	}
	h.bounds(&r)
	switch {
	case h.noSets != nil:
		r.Missing = append(r.Missing, fmt.Sprintf("package sets: %v", h.noSets))
	case !h.python.pip:
		r.Missing = append(r.Missing, "package sets: "+noPip)
	default:
		r.Missing = append(r.Missing, "install network: packages are installed with the host's network, including loopback")
	}
	return r, nil
}

// bounds reports which limits are enforced, and what applies instead of the others.
func (h *host) bounds(r *driver.Report) {
	hold := func(limit string, ok bool, instead string) {
		if ok {
			r.Enforced = append(r.Enforced, limit)
		} else {
			r.Missing = append(r.Missing, limit+": "+instead)
		}
	}
	why := fmt.Sprintf("no cgroup can be created (%v)", h.noCgroups)
	hold("memory", h.cgroups.holds("memory"),
		"it is not bounded for the sandbox as a whole, since "+why+", but for each process and each file system")
	hold("socket buffers", h.cgroups.holdsSockets(),
		"they are not counted as the sandbox's memory, and all sandboxes and the host share the kernel's "+
			"net.ipv4.tcp_mem and udp_mem")
	hold("cpu", h.cgroups.holds("cpu"), "it is not bounded, since "+why+"; sandboxes run at a low priority")
	hold("pids", h.cgroups.holds("pids") || h.countsProcesses,
		"processes are not counted per sandbox, since "+why+" and the kernel is older than 5.14")
	files := "bubblewrap cannot count files, and only root can from outside; "
	if h.cgroups.holds("memory") {
		files += "they are bounded by the sandbox's memory"
	} else {
		files += "they are not bounded"
	}
	hold("files", h.countsFiles, files)
}

// tryOnce runs a sandbox that prints a word.
func (d *Driver) tryOnce(ctx context.Context, h *host) (output string, err error) {
	const word = "ready"
	b, err := d.launch(h,
		launch{
			name: "try", args: []string{"-I", "-S", "-c", "print('" + word + "', flush=True); input()"},
			limits: driver.DefaultLimits(), errors: true,
		})
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, b.kill)
	defer stop()
	// It then waits for input, so that it still runs while its files are bounded.
	said, err := io.ReadAll(io.LimitReader(b, int64(len(word)+1)))
	if string(said) != word+"\n" && err == nil {
		var more []byte
		more, err = io.ReadAll(io.LimitReader(b, 4096))
		said = append(said, more...)
	}
	b.kill()
	<-b.done
	b.closePipes()
	switch {
	case err != nil:
		return "", err
	case b.left != nil:
		return "", b.left
	case strings.TrimSpace(string(said)) == word:
		return "", nil
	}
	if said := strings.TrimSpace(string(said)); said != "" {
		output = ": " + strings.Join(strings.Fields(said), " ")
	}
	return output, errors.Join(b.err)
}
