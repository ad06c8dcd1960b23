package camera_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// child returns the process that reads a camera's source.
func child(t *testing.T) int {
	t.Helper()
	var pids []int
	natstest.Eventually(t, "a child", func() bool {
		pids = ffmpegtest.Children(t, os.Getpid())
		return len(pids) == 1
	})
	return pids[0]
}

func (r *rig) healthy() {
	r.t.Helper()
	natstest.Eventually(r.t, "it is healthy", func() bool {
		h := r.Health()
		return h.State == contract.StateOK && h.Reason == ""
	})
}

func (r *rig) down(want string) {
	r.t.Helper()
	natstest.Eventually(r.t, "it is down: "+want, func() bool {
		h := r.Health()
		return h.State == contract.StateDown && strings.Contains(h.Reason, want)
	})
}

func TestAFilmWithMotionIsOneInputForEachEvent(t *testing.T) {
	r := newRig(t, filmed(ffmpeg.Source{File: ffmpegtest.Motion(t, "a.mp4", 12, 3, 6), Fast: true}), nil).start()
	natstest.Eventually(t, "the end", func() bool { return strings.Contains(r.Off(), "its file has ended") })
	natstest.Eventually(t, "both inputs", func() bool { return r.stats.Perceived.Load() == 2 })
	in := r.inputs(2)
	// The square that comes, and the square that goes.
	if len(in) != 2 || !strings.Contains(in[0].Text, "saw motion: 8") || len(in[0].Files) != 2 {
		t.Errorf("%+v", in)
	}
	if h := r.Health(); h.State != contract.StateOK {
		t.Errorf("%+v", h)
	}
}

func TestAChildThatDiesIsStartedAgain(t *testing.T) {
	r := newRig(t, filmed(ffmpeg.Source{File: ffmpegtest.Motion(t, "a.mp4", 2, 1, 2), Loop: true}), nil).start()
	r.healthy()
	first := child(t)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.down("killed")
	r.healthy()
	if again := child(t); again == first || r.stats.Restarts.Load() != 1 {
		t.Errorf("child %d after %d, %d restarts", again, first, r.stats.Restarts.Load())
	}
}

func TestAChildThatHangsIsReplaced(t *testing.T) {
	cfg := filmed(ffmpeg.Source{File: ffmpegtest.Motion(t, "a.mp4", 2, 1, 2), Loop: true})
	cfg.Stall = 3 * time.Second
	r := newRig(t, cfg, nil).start()
	r.healthy()
	first := child(t)
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.down("no data for 3s")
	natstest.Eventually(t, "it is gone", func() bool { return !ffmpegtest.Alive(first) })
}

func TestSwitchingOffReleasesTheDevice(t *testing.T) {
	r := newRig(t, filmed(ffmpeg.Source{File: ffmpegtest.Motion(t, "a.mp4", 2, 1, 2), Loop: true}), nil).start()
	r.healthy()
	pid := child(t)
	r.turn(false)
	natstest.Eventually(t, "the light is off", func() bool { return !r.Media().On })
	if ffmpegtest.Alive(pid) {
		t.Errorf("child %d lives while the light is off", pid)
	}
	r.turn(true)
	r.healthy()
	if err := r.OnStop(natstest.Context(t)); err != nil {
		t.Error(err)
	}
	if left := ffmpegtest.Children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("children %v are left after the end", left)
	}
}

// stream serves MJPEG over HTTP to clients that have the password.
func stream(t *testing.T, handler http.HandlerFunc) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		handler(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL, asked
}

func TestMJPEGOverHTTPWithAPassword(t *testing.T) {
	ffmpegtest.Need(t)
	still, moved := picture(t, false), picture(t, true)
	url, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "zoe" || password != "it's a secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="camera"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "multipart/x-mixed-replace;boundary=frame")
		for i := 0; r.Context().Err() == nil; i++ {
			jpeg := still
			if i/20%2 == 1 {
				jpeg = moved
			}
			_, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(jpeg), jpeg)
			if err != nil {
				return
			}
			w.(http.Flusher).Flush() //nolint:forcetypeassert // of net/http
			select {
			case <-r.Context().Done():
			case <-time.After(40 * time.Millisecond): // 25 pictures a second, as a camera
			}
		}
	})
	t.Setenv("SKANDHA_TEST_CAM", "it's a secret")
	r := newRig(t, filmed(ffmpeg.Source{URL: url + "/stream", User: "zoe", Password: "env:SKANDHA_TEST_CAM"}), nil).start()
	r.inputs(1)
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child(t)))
	if err != nil || strings.Contains(string(args), "secret") || strings.Contains(string(args), "zoe") {
		t.Errorf("the list of processes shows %q, %v", args, err)
	}
}

func TestSourcesThatAreNoCameras(t *testing.T) {
	ffmpegtest.Need(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"garbage": {func(w http.ResponseWriter, r *http.Request) {
			noise := make([]byte, 64<<10)
			for i := range noise {
				noise[i] = byte(i * i >> 3)
			}
			for range 40 {
				if _, err := w.Write(noise); err != nil {
					return
				}
			}
		}, "Invalid data"},
		"closed":  {func(_ http.ResponseWriter, _ *http.Request) {}, "trying again"},
		"missing": {http.NotFound, "404"},
		"a list of other files": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("ffconcat version 1.0\nfile 'file:/etc/passwd'\n"))
		}, "trying again"},
	} {
		url, asked := stream(t, c.handler)
		r := newRig(t, filmed(ffmpeg.Source{URL: url}), nil).start()
		r.down(c.want)
		if in := listenertest.Log(t, r.bus, listenertest.Ref); len(in) != 0 || asked.Load() == 0 {
			t.Errorf("%s: %+v, asked %d times", name, in, asked.Load())
		}
		ctx, cancel := context.WithTimeout(natstest.Context(t), natstest.Patience)
		if err := r.OnStop(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

func TestConfigurationsNameWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*camera.Config){
		"want exactly one":      func(c *camera.Config) { c.Page = false },
		"2 of them":             func(c *camera.Config) { c.Device = "/dev/video0" },
		"session is empty":      func(c *camera.Config) { c.Session = "" },
		"start is":              func(c *camera.Config) { c.Start = "maybe" },
		"masks[0]":              func(c *camera.Config) { c.Masks = []camera.Mask{{X: 0.5, Width: 0.6, Height: 1}} },
		"motion.area":           func(c *camera.Config) { c.Motion.Area = 2 },
		"fps":                   func(c *camera.Config) { c.FPS = 100 },
		"device of Video4Linux": func(c *camera.Config) { c.Page, c.Device = false, "-i" },
		"keep is":               func(c *camera.Config) { c.Keep = time.Second },
		"text_template":         func(c *camera.Config) { c.TextTemplate = "{{" },
		"credentials into user": func(c *camera.Config) { c.Page, c.URL = false, "rtsp://u:hush@h/" },
	} {
		cfg := paged()
		change(&cfg)
		if err := cfg.Validate("yard"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := paged().Validate("page"); err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Error(err)
	}
}
