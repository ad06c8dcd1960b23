package form

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
)

// Labels of containers and volumes.
const (
	LabelOwner    = "dev.skandha.sandbox.owner"
	LabelInstance = "dev.skandha.sandbox.instance" // of the service
	LabelBoot     = "dev.skandha.sandbox.boot"     // of the link that created it
	LabelPurpose  = "dev.skandha.sandbox.purpose"
	LabelName     = "dev.skandha.sandbox.name" // of the sandbox
	LabelTime     = "dev.skandha.sandbox.time" // creation time by the service's clock, for people
	LabelSet      = "dev.skandha.sandbox.set"  // id of the package set
	LabelData     = "dev.skandha.sandbox.data" // of a set: its volume of packages
	LabelBytes    = "dev.skandha.sandbox.bytes"
)

// Purposes of containers and volumes.
const (
	PurposeLease   = "lease"   // container: shows that its service is alive
	PurposeSandbox = "box"     // container
	PurposeInstall = "install" // container
	PurposeData    = "data"    // volume: packages
	PurposeSet     = "set"     // volume, empty: shows that the packages of a set are complete
	PurposeStray   = "stray"   // volume: the engine created it because packages had just been removed
)

// What names and labels consist of.
var (
	Owners    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	Names     = regexp.MustCompile(`^[a-z0-9-]{1,48}$`)
	Sets      = regexp.MustCompile(`^[a-f0-9]{64}$`)
	Boots     = regexp.MustCompile(`^[a-z2-7]{26}$`) // a random text
	instances = regexp.MustCompile(`^[ -~]{0,128}$`)
)

// Origin says whose a container or volume is. It becomes its labels.
type Origin struct {
	Owner    string
	Instance string
	Boot     string
	Time     string // RFC 3339
}

// Random returns 26 random characters, as in a boot and in the name of a volume of packages.
func Random() string { return strings.ToLower(rand.Text()) }

func (o Origin) labels(purpose string) map[string]string {
	return map[string]string{
		LabelOwner: o.Owner, LabelInstance: o.Instance, LabelBoot: o.Boot, LabelPurpose: purpose, LabelTime: o.Time,
	}
}

// originOf reads the labels of something that the owner asks for.
func originOf(labels map[string]string, owner string) (Origin, error) {
	o := Origin{
		Owner: labels[LabelOwner], Instance: labels[LabelInstance], Boot: labels[LabelBoot], Time: labels[LabelTime],
	}
	var errs []error
	if o.Owner != owner {
		errs = append(errs, fmt.Errorf("label %s is %q, want %q", LabelOwner, o.Owner, owner))
	}
	if !instances.MatchString(o.Instance) {
		errs = append(errs, fmt.Errorf("label %s: want %s", LabelInstance, instances))
	}
	if !Boots.MatchString(o.Boot) {
		errs = append(errs, fmt.Errorf("label %s: want %s", LabelBoot, Boots))
	}
	if t, err := time.Parse(time.RFC3339, o.Time); err != nil || t.Format(time.RFC3339) != o.Time {
		errs = append(errs, fmt.Errorf("label %s: want a time of RFC 3339", LabelTime))
	}
	return o, errors.Join(errs...)
}

// Owned selects the containers or volumes of an owner.
func Owned(owner string) filters.Args {
	return filters.NewArgs(filters.Arg("label", LabelOwner+"="+owner))
}

// Events selects the events that a link follows.
func Events(owner, boot string) filters.Args {
	return filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("label", LabelOwner+"="+owner), filters.Arg("label", LabelBoot+"="+boot),
		filters.Arg("event", string(events.ActionDie)), filters.Arg("event", string(events.ActionOOM)),
		filters.Arg("event", string(events.ActionDestroy)),
	)
}
