package form

import (
	"fmt"
	"path"
	"strings"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"skandha.dev/services/sandbox/driver"
)

// OldestAPI is the API version of engine 20.10.
const OldestAPI = "1.41"

// DefaultOwner is the owner if none is configured.
const DefaultOwner = "skandha"

// DefaultImage is the image that `make sandbox-image` builds.
const DefaultImage = "skandha/sandbox:latest"

// DefaultNetwork is the engine's network for installing packages.
const DefaultNetwork = "bridge"

// Runtimes, besides any other that the engine offers.
const (
	Auto  = "auto"  // runsc if the engine offers it, else its default
	Runsc = "runsc" // gVisor
	Runc  = "runc"
)

// Engine is what the form of a container depends on, apart from its purpose.
type Engine struct {
	Info    system.Info
	Runtime string // empty: the engine's default
	Image   Image
}

// Facts returns the part of an engine's description that the driver uses; the rest tells about the host.
func Facts(info system.Info) system.Info {
	out := system.Info{
		ServerVersion: info.ServerVersion, SystemTime: info.SystemTime, DefaultRuntime: info.DefaultRuntime,
		SecurityOptions: info.SecurityOptions, CgroupVersion: info.CgroupVersion, NCPU: info.NCPU,
		MemoryLimit: info.MemoryLimit, SwapLimit: info.SwapLimit, PidsLimit: info.PidsLimit, CPUCfsQuota: info.CPUCfsQuota,
		KernelMemoryTCP: info.KernelMemoryTCP, //nolint:staticcheck // deprecated with cgroups v1 itself
		Runtimes:        map[string]system.RuntimeWithStatus{},
	}
	for name := range info.Runtimes {
		out.Runtimes[name] = system.RuntimeWithStatus{}
	}
	return out
}

// Runtime selects the runtime.
func Runtime(configured string, info system.Info) (string, error) {
	if _, offered := info.Runtimes[Runsc]; configured == Auto && offered {
		return Runsc, nil
	} else if configured == Auto {
		return "", nil
	}
	if _, offered := info.Runtimes[configured]; !offered {
		return "", fmt.Errorf("%w: the Docker engine does not offer the runtime %s: "+
			"install it and name it in the engine's daemon.json, or set another runtime",
			driver.ErrUnavailable, configured)
	}
	return configured, nil
}

// Image is the image of the sandboxes, with the parts of its configuration to undo.
type Image struct {
	ID      string
	Env     []string // names of variables
	Volumes []string // directories
}

// ImageOf describes an image that the engine has found by a name, whose digest it checks.
func ImageOf(name string, found image.InspectResponse) (Image, error) {
	if _, digest, pinned := strings.Cut(name, "@"); pinned && found.ID != digest {
		has := false
		for _, r := range found.RepoDigests {
			has = has || strings.HasSuffix(r, "@"+digest)
		}
		if !has {
			return Image{}, fmt.Errorf("%w: the image %s in the Docker engine has another digest: %s, %s",
				driver.ErrUnavailable, name, found.ID, strings.Join(found.RepoDigests, ", "))
		}
	}
	i := Image{ID: found.ID}
	if found.Config == nil {
		return i, nil
	}
	for _, v := range found.Config.Env {
		name, _, _ := strings.Cut(v, "=")
		i.Env = append(i.Env, name)
	}
	for dir := range found.Config.Volumes {
		i.Volumes = append(i.Volumes, path.Clean(dir))
	}
	return i, nil
}

// UIDs returns the user ids of sandboxes: one that neither another sandbox nor anybody else on the host has,
// so that per-user kernel limits (inotify instances, descriptors in flight, pages of pipes) apply to that
// sandbox only. Where the engine maps user ids, there are few.
func (e Engine) UIDs() (first, n int) {
	for _, o := range e.Info.SecurityOptions {
		if strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless") {
			return driver.FirstOwnUID, 50_000
		}
	}
	return 1_000_000_000, 1_000_000_000
}
