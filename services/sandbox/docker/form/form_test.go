package form_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

const uid = 1_000_000_007

var (
	set    = strings.Repeat("a", 64)
	origin = form.Origin{
		Owner: "skandha", Instance: "sandbox-1", Boot: strings.Repeat("b", 26), Time: "2026-11-26T22:00:00Z",
	}
	data   = form.DataName("skandha")
	limits = driver.DefaultLimits()
	bounds = form.Bounds{Owner: "skandha", Network: form.DefaultNetwork, Limits: limits, Install: isPip}
	isPip  = func(args []string) error {
		if !slices.Equal(args, []string{"-m", "pip"}) {
			return errors.New("not an installation")
		}
		return nil
	}
	engine = form.Engine{
		Info:  system.Info{NCPU: 4, CPUCfsQuota: true},
		Image: form.Image{ID: "sha256:" + strings.Repeat("1", 64), Env: []string{"PATH", "SECRET"}, Volumes: []string{"/v"}},
	}
)

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What the driver makes is read as what it was made from, on every kind of engine.
func TestWhatTheDriverMakesIsRead(t *testing.T) {
	third := limits
	third.CPUs = 1.0 / 3
	many := limits
	many.CPUs = 64
	wide := bounds
	wide.Limits.CPUs = 64
	gvisor, old, mapped := engine, engine, engine
	gvisor.Runtime = form.Runsc
	old.Info = system.Info{NCPU: 2, KernelMemoryTCP: true} //nolint:staticcheck // an engine with cgroups v1
	mapped.Info.SecurityOptions = []string{"name=rootless"}
	for about, e := range map[string]form.Engine{
		"runc": engine, "gVisor": gvisor, "cgroups v1 without quota": old, "rootless": mapped,
	} {
		first, n := e.UIDs()
		for _, c := range []form.Container{
			form.Lease(first), form.Sandbox("s-1", first+n-1, []string{"-c", "print(1)"}, limits, nil),
			form.Sandbox("s-1", first, nil, third, form.SetMount("skandha", data)), form.Sandbox("s-1", first, nil, many, nil),
			form.Install(data, form.DefaultNetwork, 1<<20, []string{"-m", "pip"}),
		} {
			want := encode(t, e.Create(origin, c))
			got, err := form.Read(e, want, origin.ContainerName(c), wide)
			if err != nil || string(got.Body) != string(want) || got.Origin != origin || got.Purpose != c.Purpose {
				t.Errorf("%s: a %s is read as %+v, %v", about, c.Purpose, got.Container, err)
			}
		}
	}
	for _, v := range []any{origin.DataVolume(data, set), origin.SetVolume(set, data, 7)} {
		want := encode(t, v)
		if got, err := form.ReadVolume(want, "skandha"); err != nil || string(got) != string(want) {
			t.Errorf("%s is read as %s, %v", want, got, err)
		}
	}
}

// Each change makes a request that the driver never sends.
func TestOtherContainersAreRefused(t *testing.T) {
	yes, name := true, origin.ContainerName(form.Lease(uid))
	type request = container.CreateRequest
	change := map[string]func(*request){
		"Privileged": func(r *request) { r.HostConfig.Privileged = true },
		"Binds":      func(r *request) { r.HostConfig.Binds = []string{"/:/host"} },
		"Mounts": func(r *request) {
			r.HostConfig.Mounts = []mount.Mount{{Type: mount.TypeBind, Source: "/", Target: "/h"}}
		},
		"Mounts of volumes": func(r *request) { r.HostConfig.Mounts = []mount.Mount{*form.SetMount("skandha", data)} },
		"VolumesFrom":       func(r *request) { r.HostConfig.VolumesFrom = []string{"other"} },
		"VolumeDriver":      func(r *request) { r.HostConfig.VolumeDriver = "local" },
		"PidMode":           func(r *request) { r.HostConfig.PidMode = "host" },
		"PidMode of other":  func(r *request) { r.HostConfig.PidMode = "container:other" },
		"NetworkMode":       func(r *request) { r.HostConfig.NetworkMode = "host" },
		"NetworkMode open":  func(r *request) { r.HostConfig.NetworkMode = "bridge" },
		"NetworkDisabled":   func(r *request) { r.NetworkDisabled = false },
		"IpcMode":           func(r *request) { r.HostConfig.IpcMode = "host" },
		"UTSMode":           func(r *request) { r.HostConfig.UTSMode = "host" },
		"UsernsMode":        func(r *request) { r.HostConfig.UsernsMode = "host" },
		"CgroupnsMode":      func(r *request) { r.HostConfig.CgroupnsMode = "host" },
		"CgroupParent":      func(r *request) { r.HostConfig.CgroupParent = "/" },
		"CapAdd":            func(r *request) { r.HostConfig.CapAdd = []string{"SYS_ADMIN"} },
		"CapDrop":           func(r *request) { r.HostConfig.CapDrop = nil },
		"Devices":           func(r *request) { r.HostConfig.Devices = []container.DeviceMapping{{PathOnHost: "/dev/sda"}} },
		"DeviceCgroupRules": func(r *request) { r.HostConfig.DeviceCgroupRules = []string{"a *:* rwm"} },
		"DeviceRequests":    func(r *request) { r.HostConfig.DeviceRequests = []container.DeviceRequest{{Count: -1}} },
		"Sysctls":           func(r *request) { r.HostConfig.Sysctls = map[string]string{"kernel.msgmax": "1"} },
		"SecurityOpt":       func(r *request) { r.HostConfig.SecurityOpt = []string{"seccomp=unconfined"} },
		"SecurityOpt more":  func(r *request) { r.HostConfig.SecurityOpt[0] = "apparmor=unconfined" },
		"SecurityOpt less":  func(r *request) { r.HostConfig.SecurityOpt = r.HostConfig.SecurityOpt[:1] },
		"MaskedPaths":       func(r *request) { r.HostConfig.MaskedPaths = []string{} },
		"ReadonlyPaths":     func(r *request) { r.HostConfig.ReadonlyPaths = []string{} },
		"ReadonlyRootfs":    func(r *request) { r.HostConfig.ReadonlyRootfs = false },
		"Tmpfs":             func(r *request) { r.HostConfig.Tmpfs["/etc"] = "rw" },
		"Runtime":           func(r *request) { r.HostConfig.Runtime = "other" },
		"AutoRemove":        func(r *request) { r.HostConfig.AutoRemove = false },
		"RestartPolicy":     func(r *request) { r.HostConfig.RestartPolicy.Name = "always" },
		"PortBindings":      func(r *request) { r.HostConfig.PublishAllPorts = true },
		"ExtraHosts":        func(r *request) { r.HostConfig.ExtraHosts = []string{"a:1.2.3.4"} },
		"LogConfig":         func(r *request) { r.HostConfig.LogConfig.Type = "syslog" },
		"Init":              func(r *request) { r.HostConfig.Init = &yes },
		"GroupAdd":          func(r *request) { r.HostConfig.GroupAdd = []string{"docker"} },
		"OomScoreAdj":       func(r *request) { r.HostConfig.OomScoreAdj = -1000 },
		"OomKillDisable":    func(r *request) { r.HostConfig.OomKillDisable = &yes },
		"ContainerIDFile":   func(r *request) { r.HostConfig.ContainerIDFile = "/etc/cron.d/x" },
		"Memory":            func(r *request) { r.HostConfig.Memory = 1 << 40 },
		"PidsLimit":         func(r *request) { r.HostConfig.PidsLimit = nil },
		"Ulimits":           func(r *request) { r.HostConfig.Ulimits = nil },
		"NanoCPUs":          func(r *request) { r.HostConfig.NanoCPUs = 0 },
		"User":              func(r *request) { r.User = "0:0" },
		"User's group":      func(r *request) { r.User = "1000000007:0" },
		"Entrypoint":        func(r *request) { r.Entrypoint = []string{"sh"} },
		"Cmd":               func(r *request) { r.Cmd = []string{"-c", "print(1)"} },
		"Env":               func(r *request) { r.Env = append(r.Env, "LD_PRELOAD=/x") },
		"WorkingDir":        func(r *request) { r.WorkingDir = "/" },
		"Tty":               func(r *request) { r.Tty = true },
		"StdinOnce":         func(r *request) { r.StdinOnce = false },
		"Volumes":           func(r *request) { r.Volumes = map[string]struct{}{"/v": {}} },
		"StopSignal":        func(r *request) { r.StopSignal = "KILL" },
		"Healthcheck":       func(r *request) { r.Healthcheck.Test = []string{"CMD", "sh"} },
		"Image":             func(r *request) { r.Image = "other" },
		"another owner":     func(r *request) { r.Labels[form.LabelOwner] = "other" },
		"no owner":          func(r *request) { delete(r.Labels, form.LabelOwner) },
		"a label":           func(r *request) { r.Labels["com.docker.compose.project"] = "other" },
		"a purpose":         func(r *request) { r.Labels[form.LabelPurpose] = form.PurposeData },
		"a name":            func(r *request) { r.Labels[form.LabelName] = "other" },
		"a boot":            func(r *request) { r.Labels[form.LabelBoot] = "../../x" },
		"a time":            func(r *request) { r.Labels[form.LabelTime] = "now" },
		"an instance":       func(r *request) { r.Labels[form.LabelInstance] = "a\nb" },
		"no HostConfig":     func(r *request) { r.HostConfig = nil },
		"no Config":         func(r *request) { r.Config = nil },
	}
	for about, f := range change {
		r := engine.Create(origin, form.Lease(uid))
		f(&r)
		if got, err := form.Read(engine, encode(t, r), name, bounds); err == nil {
			t.Errorf("%s: it is read as %+v", about, got)
		}
	}
	if _, err := form.Read(engine, encode(t, engine.Create(origin, form.Lease(uid))), "other", bounds); err == nil {
		t.Error("a container may have any name")
	}
}

func TestOtherSandboxesAreRefused(t *testing.T) {
	large, tiny := limits, limits
	large.Memory++
	tiny.PIDs = 1
	for about, c := range map[string]form.Container{
		"too much memory":          form.Sandbox("s", uid, nil, large, nil),
		"too few processes":        form.Sandbox("s", uid, nil, tiny, nil),
		"the user of the service":  form.Sandbox("s", driver.UID, nil, limits, nil),
		"a name with a slash":      form.Sandbox("a/b", uid, nil, limits, nil),
		"another owner's packages": form.Sandbox("s", uid, nil, limits, form.SetMount("skandha", form.DataName("other"))),
		"another owner's labels":   form.Sandbox("s", uid, nil, limits, form.SetMount("other", data)),
		"a path of the host":       form.Sandbox("s", uid, nil, limits, form.SetMount("skandha", "/etc")),
		"any program with network": form.Install(data, form.DefaultNetwork, 1<<20, []string{"-c", "print(1)"}),
		"the host's network":       form.Install(data, "host", 1<<20, []string{"-m", "pip"}),
		"a volume without end":     form.Install(data, form.DefaultNetwork, 1<<50, []string{"-m", "pip"}),
		"another owner's volume":   form.Install(form.DataName("other"), form.DefaultNetwork, 1<<20, []string{"-m", "pip"}),
	} {
		if got, err := form.Read(engine, encode(t, engine.Create(origin, c)), origin.ContainerName(c), bounds); err == nil {
			t.Errorf("%s: it is read as %+v", about, got.Container)
		}
	}
}

// The engine reads names in any case, and the last of equal ones.
func TestAmbiguousBodiesAreRefused(t *testing.T) {
	lease := form.Lease(uid)
	whole := string(encode(t, engine.Create(origin, lease)))
	deep := strings.Repeat("[", 99) + strings.Repeat("]", 99)
	put := func(text string) string { return strings.Replace(whole, `"HostConfig":{`, text, 1) }
	for about, body := range map[string]string{
		"a duplicate":                    put(`"HostConfig":{"Privileged":true},"HostConfig":{`),
		"a duplicate behind":             strings.TrimSuffix(whole, "}") + `,"HostConfig":{"Privileged":true}}`,
		"a duplicate within":             put(`"HostConfig":{"Privileged":true,`),
		"another case":                   put(`"hostconfig":{`),
		"a second one in another case":   put(`"hostconfig":{"Privileged":true},"HostConfig":{`),
		"another case within":            put(`"HostConfig":{"privileged":true,`),
		"a letter that folds":            put(`"Ho\u017ftConfig":{"Privileged":true},"HostConfig":{`),
		"an unknown name":                put(`"More":1,"HostConfig":{`),
		"an unknown name within":         put(`"HostConfig":{"More":1,`),
		"null":                           put(`"NetworkingConfig":null,"HostConfig":{`),
		"a network":                      put(`"NetworkingConfig":{"EndpointsConfig":{"other":{}}},"HostConfig":{`),
		"another number":                 strings.Replace(whole, `"OomScoreAdj":500`, `"OomScoreAdj":5e2`, 1),
		"something behind":               whole + `{"HostConfig":{"Privileged":true}}`,
		"something before":               "[]" + whole,
		"nothing":                        "",
		"a list":                         "[" + whole + "]",
		"depth":                          put(`"More":` + deep + `,"HostConfig":{`),
		"a long list":                    put(`"More":[0` + strings.Repeat(",0", 1<<16) + `],"HostConfig":{`),
		"half of it":                     whole[:len(whole)/2],
		"a name that is not well-formed": put("\"HostConfig\xff\":{},\"HostConfig\":{"),
	} {
		if body == whole {
			t.Fatalf("%s: the body is not changed", about)
		}
		if got, err := form.Read(engine, []byte(body), origin.ContainerName(lease), bounds); err == nil {
			t.Errorf("%s: it is read as %+v", about, got.Container)
		}
	}
	if _, err := form.Read(engine, []byte(put(`"HostConfig":{"Privileged":true,`)), origin.ContainerName(lease),
		bounds); err == nil || !strings.Contains(err.Error(), "Privileged") {
		t.Errorf("the error is %v, want it to name the field", err)
	}
}

func TestOtherVolumesAreRefused(t *testing.T) {
	whole := string(encode(t, origin.DataVolume(data, set)))
	foreign := origin
	foreign.Owner = "other"
	for about, body := range map[string]string{
		"a bind":          strings.Replace(whole, "{", `{"DriverOpts":{"type":"none","o":"bind","device":"/"},`, 1),
		"another driver":  strings.Replace(whole, "{", `{"Driver":"nfs",`, 1),
		"another case":    strings.Replace(whole, `"Name"`, `"name"`, 1),
		"a duplicate":     strings.Replace(whole, "{", `{"Labels":{},`, 1),
		"another label":   strings.Replace(whole, `"Labels":{`, `"Labels":{"more":"1",`, 1),
		"another name":    strings.Replace(whole, data, "skandha-data-x", 1),
		"any name":        strings.Replace(whole, data, "other", 1),
		"another owner":   string(encode(t, foreign.DataVolume(data, set))),
		"another's set":   string(encode(t, foreign.SetVolume(set, data, 1))),
		"no data":         string(encode(t, origin.SetVolume(set, "other", 1))),
		"a negative size": string(encode(t, origin.SetVolume(set, data, -1))),
		"no set":          string(encode(t, origin.DataVolume(data, "../x"))),
		"nothing":         `{}`,
	} {
		if got, err := form.ReadVolume([]byte(body), "skandha"); err == nil {
			t.Errorf("%s: it is read as %s", about, got)
		}
	}
}

// What is accepted means the same to the engine as what the proxy makes of it. A volume has a short body, which is
// read as that of a container.
func FuzzReadVolume(f *testing.F) {
	whole, err := json.Marshal(origin.DataVolume(data, set))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(strings.Replace(string(whole), "{", `{"driver":"nfs",`, 1)))
	f.Add([]byte(strings.Replace(string(whole), `"Labels":{`, `"Labels":{"a":"b"},"Labels":{`, 1)))
	f.Fuzz(func(t *testing.T, body []byte) {
		made, err := form.ReadVolume(body, "skandha")
		if err != nil {
			return
		}
		var client, proxy volume.CreateOptions
		if err := errors.Join(json.Unmarshal(body, &client), json.Unmarshal(made, &proxy)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(client, proxy) {
			t.Errorf("%s is read as %s", body, made)
		}
	})
}
