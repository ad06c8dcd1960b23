package form

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/driver"
)

// Bounds are what an owner may ask for.
type Bounds struct {
	Owner   string
	Network string        // for installing packages
	Limits  driver.Limits // of a sandbox, at most
	// Install checks the arguments of an installation; nil: any.
	Install func(args []string) error
}

// Request is a container that somebody asks for.
type Request struct {
	Container
	Origin
	Body []byte // made from the two
}

// ImageID returns the image that a body names.
func ImageID(body []byte) (string, error) {
	var asked struct{ Image string }
	if err := json.Unmarshal(body, &asked); err != nil {
		return "", fmt.Errorf("the body: %w", err)
	}
	return asked.Image, nil
}

// Read reads the body of a request to create a container of that name. It returns an error unless the driver
// makes exactly this body for some container within the bounds.
func Read(e Engine, body []byte, name string, b Bounds) (Request, error) {
	got, err := decode(body)
	if err != nil {
		return Request{}, err
	}
	var asked container.CreateRequest // ambiguous names are found by the comparison
	if err := json.Unmarshal(body, &asked); err != nil {
		return Request{}, fmt.Errorf("the body: %w", err)
	}
	if asked.Config == nil || asked.HostConfig == nil {
		return Request{}, errors.New("the body: Image or HostConfig is missing")
	}
	o, err := originOf(asked.Labels, b.Owner)
	if err != nil {
		return Request{}, err
	}
	c, err := e.read(asked, b)
	if err != nil {
		return Request{}, err
	}
	if want := o.ContainerName(c); name != want {
		return Request{}, fmt.Errorf("name is %.100q, want %q", name, want)
	}
	made, err := same(got, e.Create(o, c))
	return Request{c, o, made}, err
}

// read takes out of a body the values that are not constants.
func (e Engine) read(asked container.CreateRequest, b Bounds) (Container, error) {
	switch purpose := asked.Labels[LabelPurpose]; purpose {
	case PurposeLease:
		uid, err := e.uid(asked.User)
		return Lease(uid), err
	case PurposeSandbox:
		return e.sandbox(asked, b)
	case PurposeInstall:
		return install(asked, b)
	default:
		return Container{}, fmt.Errorf("label %s is %.50q, want %s, %s or %s", LabelPurpose, purpose,
			PurposeLease, PurposeSandbox, PurposeInstall)
	}
}

func (e Engine) sandbox(asked container.CreateRequest, b Bounds) (Container, error) {
	name := asked.Labels[LabelName]
	if !Names.MatchString(name) {
		return Container{}, fmt.Errorf("label %s: want %s", LabelName, Names)
	}
	uid, err := e.uid(asked.User)
	if err != nil {
		return Container{}, err
	}
	limits := e.limits(*asked.HostConfig)
	if err := within(limits, b.Limits); err != nil {
		return Container{}, err
	}
	c := Sandbox(name, uid, asked.Cmd, limits, nil)
	if mounts := asked.HostConfig.Mounts; len(mounts) > 0 {
		if !IsData(b.Owner, mounts[0].Source) {
			return Container{}, fmt.Errorf("field HostConfig.Mounts[0].Source is %.100q, want a volume of packages",
				mounts[0].Source)
		}
		c.Mount = SetMount(b.Owner, mounts[0].Source)
	}
	return c, nil
}

func install(asked container.CreateRequest, b Bounds) (Container, error) {
	const own = 5 // arguments that begin every installation
	if len(asked.HostConfig.Mounts) == 0 || !IsData(b.Owner, asked.HostConfig.Mounts[0].Source) {
		return Container{}, errors.New("field HostConfig.Mounts: want a volume for packages")
	}
	if len(asked.Cmd) < own {
		return Container{}, errors.New("field Cmd: want the arguments of an installation")
	}
	bytes, err := strconv.ParseInt(asked.Cmd[own-1], 10, 64)
	if err != nil || bytes <= 0 || bytes > 1<<40 {
		return Container{}, fmt.Errorf("field Cmd: the bound of the packages is %.50q, want a number of bytes up to 1 TiB",
			asked.Cmd[own-1])
	}
	args := asked.Cmd[own:]
	if b.Install != nil {
		if err := b.Install(args); err != nil {
			return Container{}, fmt.Errorf("field Cmd: %w", err)
		}
	}
	return Install(asked.HostConfig.Mounts[0].Source, b.Network, bytes, args), nil
}

// uid reads the user of a lease or sandbox.
func (e Engine) uid(user string) (int, error) {
	first, n := e.UIDs()
	text, _, _ := strings.Cut(user, ":")
	uid, err := strconv.Atoi(text)
	if err != nil || uid < first || uid-first >= n {
		return 0, fmt.Errorf("field User is %.50q, want an id from %d to %d", user, first, first+n-1)
	}
	return uid, nil
}

// limits reads the limits of a sandbox.
func (e Engine) limits(h container.HostConfig) driver.Limits {
	l := driver.Limits{Memory: h.Memory, CPUs: float64(h.NanoCPUs) / 1e9}
	if h.PidsLimit != nil {
		l.PIDs = *h.PidsLimit
	}
	if e.Runtime == Runsc {
		l.Memory, l.PIDs = l.Memory-GVisorMemory, (l.PIDs-gvisorPIDs)/gvisorPerPIDs
	}
	if !e.Info.CPUCfsQuota { // the request has no such limit
		l.CPUs = 1
	}
	for _, u := range h.Ulimits {
		if u != nil && u.Name == "nofile" {
			l.OpenFiles = u.Hard
		}
	}
	const options = "rw,nosuid,nodev,size=%d,nr_inodes=%d,"
	var files int64
	// What cannot be read stays 0, which is not within the bounds.
	_, _ = fmt.Sscanf(h.Tmpfs[driver.Workspace], options, &l.Workspace, &l.WorkspaceFiles)
	_, _ = fmt.Sscanf(h.Tmpfs[driver.Tmp], options, &l.Tmp, &files)
	return l
}

// within reports every limit that is not within the bounds.
func within(l, most driver.Limits) error {
	errs := []error{l.Validate()}
	for _, f := range []struct {
		name      string
		got, most float64
	}{
		{"memory", float64(l.Memory), float64(most.Memory)},
		{"cpus", l.CPUs, most.CPUs},
		{"pids", float64(l.PIDs), float64(most.PIDs)},
		{"open_files", float64(l.OpenFiles), float64(most.OpenFiles)},
		{"workspace", float64(l.Workspace), float64(most.Workspace)},
		{"workspace_files", float64(l.WorkspaceFiles), float64(most.WorkspaceFiles)},
		{"tmp", float64(l.Tmp), float64(most.Tmp)},
	} {
		if f.got > f.most {
			errs = append(errs, fmt.Errorf("limits.%s is %.10g, want at most %.10g", f.name, f.got, f.most))
		}
	}
	return errors.Join(errs...)
}

// ReadVolume reads the body of a request to create a volume, and returns the one that the driver makes.
func ReadVolume(body []byte, owner string) ([]byte, error) {
	got, err := decode(body)
	if err != nil {
		return nil, err
	}
	var asked volume.CreateOptions
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, fmt.Errorf("the body: %w", err)
	}
	o, err := originOf(asked.Labels, owner)
	if err != nil {
		return nil, err
	}
	set := asked.Labels[LabelSet]
	if !Sets.MatchString(set) {
		return nil, fmt.Errorf("label %s: want %s", LabelSet, Sets)
	}
	switch purpose := asked.Labels[LabelPurpose]; purpose {
	case PurposeData:
		if !IsData(owner, asked.Name) {
			return nil, fmt.Errorf("field Name is %.100q, want the name of a volume of packages", asked.Name)
		}
		return same(got, o.DataVolume(asked.Name, set))
	case PurposeSet:
		data := asked.Labels[LabelData]
		bytes, err := strconv.ParseInt(asked.Labels[LabelBytes], 10, 64)
		if err != nil || bytes < 0 {
			return nil, fmt.Errorf("label %s: want a number of bytes", LabelBytes)
		}
		if !IsData(owner, data) {
			return nil, fmt.Errorf("label %s: want the name of a volume of packages", LabelData)
		}
		return same(got, o.SetVolume(set, data, bytes))
	default:
		return nil, fmt.Errorf("label %s is %.50q, want %s or %s", LabelPurpose, purpose, PurposeData, PurposeSet)
	}
}
