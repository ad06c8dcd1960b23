package camera_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/natstest"
)

// rtspServer is a camera that speaks RTSP over TCP, as far as ffmpeg asks it: it passes on the RTP
// packets that another ffmpeg sends.
type rtspServer struct {
	t       *testing.T
	sdp     string
	packets net.PacketConn
}

// serveRTSP plays a film to a client that authenticates, and returns its address.
func serveRTSP(t *testing.T, film string) string {
	t.Helper()
	packets, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sdp := filepath.Join(t.TempDir(), "sdp")
	cmd := exec.CommandContext(t.Context(), ffmpeg.Program, "-hide_banner", "-loglevel", "error", "-nostdin", "-stream_loop", "-1",
		"-re", "-i", film, "-an", "-c:v", "mpeg4", "-g", "5", "-f", "rtp", "-sdp_file", sdp, "rtp://"+packets.LocalAddr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = l.Close(), packets.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &rtspServer{t: t, packets: packets}
	natstest.Eventually(t, "the description", func() bool {
		b, err := os.ReadFile(sdp) //nolint:gosec // of this test
		s.sdp = string(b)
		return err == nil && strings.Contains(s.sdp, "m=video")
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return "rtsp://" + l.Addr().String() + "/stream"
}

// serve answers the requests of a connection.
func (s *rtspServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := textproto.NewReader(bufio.NewReader(c))
	for {
		first, err := r.ReadLine()
		if err != nil {
			return
		}
		h, err := r.ReadMIMEHeader()
		if err != nil {
			return
		}
		method, _, _ := strings.Cut(first, " ")
		status, more, body := "200 OK", "Public: DESCRIBE, SETUP, PLAY", ""
		switch {
		case method != "OPTIONS" && !strings.Contains(h.Get("Authorization"), `username="zoe"`):
			status, more = "401 Unauthorized", `WWW-Authenticate: Digest realm="camera", nonce="1"`
		case method == "DESCRIBE":
			more, body = "Content-Type: application/sdp", s.sdp
		case method == "SETUP":
			more = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1"
		case method == "PLAY":
			more = "Session: 1"
		}
		if _, err := fmt.Fprintf(c, "RTSP/1.0 %s\r\nCSeq: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
			status, h.Get("CSeq"), more, len(body), body); err != nil {
			return
		}
		if method == "PLAY" && status == "200 OK" {
			s.play(c)
			return
		}
	}
}

// play passes packets on, each in a frame of the connection.
func (s *rtspServer) play(c net.Conn) {
	packet := make([]byte, 64<<10)
	for {
		n, _, err := s.packets.ReadFrom(packet[4:])
		if err != nil {
			return
		}
		packet[0], packet[1], packet[2], packet[3] = '$', 0, byte(n>>8), byte(n)
		if _, err := c.Write(packet[:4+n]); err != nil {
			return
		}
	}
}

func TestRTSPWithAPassword(t *testing.T) {
	url := serveRTSP(t, ffmpegtest.Motion(t, "a.mp4", 4, 2, 4))
	t.Setenv("SKANDHA_TEST_CAM", "hush")
	r := newRig(t, filmed(ffmpeg.Source{URL: url, User: "zoe", Password: "env:SKANDHA_TEST_CAM"}), nil).start()
	if in := r.inputs(1); !strings.Contains(in[0].Text, "saw motion") {
		t.Errorf("%+v", in)
	}
	ctx, cancel := context.WithTimeout(natstest.Context(t), natstest.Patience)
	defer cancel()
	if err := r.OnStop(ctx); err != nil {
		t.Error(err)
	}
}
