package natstest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Disk is a file system of a given size. It needs root on Linux.
type Disk struct {
	Dir string
	t   testing.TB
}

// SmallDisk mounts a file system of so many MiB until the test ends. Where that is not
// possible, the test is skipped, or fails if SKANDHA_REQUIRE is all.
func SmallDisk(t testing.TB, mib int) *Disk {
	t.Helper()
	d := &Disk{Dir: t.TempDir(), t: t}
	if err := d.mount(fmt.Sprintf("size=%dm", mib)); err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatalf("mounting a small disk: %v", err)
		}
		t.Skipf("a full disk cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", d.Dir).CombinedOutput(); err != nil { //nolint:noctx // at the end
			t.Errorf("unmounting %s: %v: %s", d.Dir, err, out)
		}
	})
	return d
}

// Resize makes the file system larger or smaller.
func (d *Disk) Resize(mib int) {
	d.t.Helper()
	if err := d.mount(fmt.Sprintf("remount,size=%dm", mib)); err != nil {
		d.t.Fatalf("resizing the disk: %v", err)
	}
}

// Leave resizes the file system so that so many MiB are free, less than one more.
func (d *Disk) Leave(mib int) {
	d.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.Dir, &st); err != nil {
		d.t.Fatalf("measuring the disk: %v", err)
	}
	used := (st.Blocks - st.Bfree) * uint64(st.Bsize) //nolint:gosec // a size
	d.Resize(int(used>>20) + 1 + mib)                 //nolint:gosec // of MiB
}

func (d *Disk) mount(options string) error {
	//nolint:gosec // of this test
	out, err := exec.CommandContext(Context(d.t), "mount", "-t", "tmpfs", "-o", options, "tmpfs", d.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
