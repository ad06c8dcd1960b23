package form

import (
	"regexp"
	"strconv"

	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/driver"
)

// DataName returns a new name for a volume of packages.
func DataName(owner string) string { return owner + "-data-" + Random() }

// Marker returns the name of the volume that marks a set as complete.
func Marker(owner, set string) string { return owner + "-set-" + set }

var (
	data    = regexp.MustCompile(`-data-[a-z2-7]{26}$`)
	markers = regexp.MustCompile(`-set-[a-f0-9]{64}$`)
)

// IsData reports whether a volume of packages may have the name.
func IsData(owner, name string) bool { return matches(owner, name, data) }

// IsVolume reports whether a volume of the owner may have the name.
func IsVolume(owner, name string) bool { return IsData(owner, name) || matches(owner, name, markers) }

func matches(owner, name string, rest *regexp.Regexp) bool {
	at := rest.FindStringIndex(name)
	return at != nil && name[:at[0]] == owner
}

// DataVolume is a volume for the packages of a set.
func (o Origin) DataVolume(name, set string) volume.CreateOptions {
	labels := o.labels(PurposeData)
	labels[LabelSet] = set
	return volume.CreateOptions{Name: name, Labels: labels}
}

// SetVolume is the volume that marks a set as complete.
func (o Origin) SetVolume(set, data string, bytes int64) volume.CreateOptions {
	labels := o.labels(PurposeSet)
	labels[LabelSet], labels[LabelData], labels[LabelBytes] = set, data, strconv.FormatInt(bytes, 10)
	return volume.CreateOptions{Name: Marker(o.Owner, set), Labels: labels}
}

// SetMount mounts packages in a sandbox. If the volume is removed in the meantime, the engine creates a new
// one with these labels.
func SetMount(owner, data string) *mount.Mount {
	return &mount.Mount{
		Type: mount.TypeVolume, Source: data, Target: driver.Packages, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{
			NoCopy: true, Labels: map[string]string{LabelOwner: owner, LabelPurpose: PurposeStray},
		},
	}
}

// dataMount mounts a new volume for packages. It gets the owner of the image's directory.
func dataMount(data string) *mount.Mount {
	return &mount.Mount{Type: mount.TypeVolume, Source: data, Target: driver.Packages}
}
