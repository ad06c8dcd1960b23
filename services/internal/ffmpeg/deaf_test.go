package ffmpeg_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/natstest"
)

// A stopped process reads nothing; its ffmpeg must not keep the device for that time.
func TestFfmpegLeavesItsSourceIfNobodyReads(t *testing.T) {
	child, err := ffmpeg.Source{File: ffmpegtest.Motion(t, "a.mp4", 2, 1, 2), Loop: true, Fast: true}.Child("-map", "0:v:0", "-c:v", "rawvideo",
		"-f", "rawvideo", "-flush_packets", "1", "-rw_timeout", "1", "pipe:1") // as ffmpeg.Output, but sooner
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	ctx := natstest.Context(t)
	err = ffmpeg.Run(ctx, child, func(r io.Reader) error {
		if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
			return err
		}
		natstest.Eventually(t, "ffmpeg is gone", func() bool { return len(ffmpegtest.Children(t, os.Getpid())) == 0 })
		close(left)
		return drain(r)
	})
	<-left
	if ctx.Err() != nil || errors.Is(err, ffmpeg.ErrEnded) || !strings.Contains(err.Error(), "ffmpeg ended") {
		t.Error(err)
	}
}
