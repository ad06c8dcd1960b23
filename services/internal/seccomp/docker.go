package seccomp

import (
	"encoding/json"
	"sync"
)

// The JSON form of Docker's profiles, with the fields that this one uses.
type (
	dockerProfile struct {
		DefaultAction string       `json:"defaultAction"`
		ArchMap       []dockerArch `json:"archMap"`
		Syscalls      []dockerRule `json:"syscalls"`
	}
	dockerArch struct {
		Architecture     string   `json:"architecture"`
		SubArchitectures []string `json:"subArchitectures"`
	}
	dockerRule struct {
		Names    []string    `json:"names"`
		Action   string      `json:"action"`
		ErrnoRet *uint32     `json:"errnoRet,omitempty"`
		Args     []dockerArg `json:"args,omitempty"`
	}
	dockerArg struct {
		Index    int    `json:"index"`
		Value    uint64 `json:"value"` // the mask
		ValueTwo uint64 `json:"valueTwo"`
		Op       string `json:"op"`
	}
)

const (
	dockerErrno  = "SCMP_ACT_ERRNO" // EPERM, unless errnoRet is set
	dockerAllow  = "SCMP_ACT_ALLOW"
	dockerMasked = "SCMP_CMP_MASKED_EQ"
)

var docker = sync.OnceValue(func() string {
	text, err := json.Marshal(dockerOf())
	if err != nil {
		panic(err) // impossible: it consists of strings and numbers
	}
	return string(text)
})

// Docker returns the profile in Docker's JSON form, for amd64 and arm64, as `--security-opt
// seccomp=` and HostConfig.SecurityOpt accept it. Engines before 20.10.10 do not know
// errnoRet; there libc's clone3 is refused with EPERM and no thread starts.
func Docker() string { return docker() }

func dockerOf() dockerProfile {
	p := dockerProfile{
		DefaultAction: dockerErrno,
		// No sub-architectures: 32-bit and x32 calls end the process.
		ArchMap: []dockerArch{
			{"SCMP_ARCH_X86_64", []string{}}, {"SCMP_ARCH_AARCH64", []string{}},
		},
		Syscalls: []dockerRule{{Names: allowed, Action: dockerAllow}},
	}
	for _, r := range refusals {
		p.Syscalls = append(p.Syscalls, dockerRule{Names: r.names, Action: dockerErrno, ErrnoRet: &r.errno})
	}
	for _, r := range conditional {
		for _, all := range r.any {
			d := dockerRule{Names: r.names, Action: dockerAllow}
			for _, c := range all {
				d.Args = append(d.Args, dockerArg{Index: c.arg, Value: uint64(c.mask), ValueTwo: uint64(c.value), Op: dockerMasked})
			}
			p.Syscalls = append(p.Syscalls, d)
		}
	}
	return p
}
