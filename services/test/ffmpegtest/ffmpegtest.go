// Package ffmpegtest makes films and sound for tests with ffmpeg, and finds the children of this
// process.
package ffmpegtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skandha.dev/services/internal/ffmpeg"
)

// Need skips the test if ffmpeg is not installed, or fails it if the environment says
// SKANDHA_REQUIRE=all.
func Need(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath(ffmpeg.Program); err != nil {
		const missing = "NOT TESTED: ffmpeg is not installed"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
}

// Make runs ffmpeg, whose last argument is the name of a file in a directory of the test, and
// returns the file.
func Make(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	Need(tb)
	file := filepath.Join(tb.TempDir(), name)
	args = append(append([]string{"-hide_banner", "-loglevel", "error", "-nostdin", "-y"}, args...), file)
	out, err := exec.CommandContext(tb.Context(), ffmpeg.Program, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("ffmpeg %q: %v: %s", args, err, out)
	}
	return file
}

// Motion makes a film of so many seconds in which nothing moves before the second from, and a white
// square until the second to.
func Motion(tb testing.TB, name string, seconds, from, to float64) string {
	tb.Helper()
	n := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	return Make(tb, name, "-f", "lavfi", "-i", "color=c=gray:s=320x240:r=10:d="+n(seconds), "-vf",
		"drawbox=x=120:y=80:w=80:h=80:color=white:t=fill:enable='between(t,"+n(from)+","+n(to)+")'", "-pix_fmt", "yuv420p")
}

// Children returns the processes that this one, or the one with the id, has started and not waited
// for.
func Children(tb testing.TB, of int) []int {
	tb.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var out []int
	for _, file := range stats {
		stat, err := os.ReadFile(file) //nolint:gosec // of the kernel
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(of) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Alive reports whether a process runs.
func Alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}
