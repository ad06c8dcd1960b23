package mqttclient

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// script is a connection that sends some bytes.
type script struct {
	net.Conn
	in io.Reader
}

func (s script) Read(p []byte) (int, error) { return s.in.Read(p) }

const publish, pingresp = 0x30, 0xd0

// message is a PUBLISH packet with a remaining length.
func message(rest []byte) []byte {
	out := []byte{publish}
	for n := len(rest); ; {
		b := byte(n & 0x7f)
		if n >>= 7; n == 0 {
			return append(append(out, b), rest...)
		}
		out = append(out, b|0x80)
	}
}

func TestAMessageThatIsTooLargeIsCutAndTheNextOneArrives(t *testing.T) {
	large, small := bytes.Repeat([]byte("x"), maxOverhead+5000), []byte("\x00\x01tsmall")
	sent := append(message(large), message(small)...)
	got, err := io.ReadAll(newGuard(script{in: bytes.NewReader(sent)}, 100))
	want := append(message(large[:maxOverhead+101]), message(small)...)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestAnotherPacketThatIsTooLargeEndsTheConnection(t *testing.T) {
	for _, sent := range [][]byte{
		{pingresp, 0xff, 0xff, 0xff, 0x7f}, // 256 MiB
		{pingresp, 0xff, 0xff, 0xff, 0xff, 0x01},
		{publish, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		if got, err := io.ReadAll(newGuard(script{in: bytes.NewReader(sent)}, 100)); !errors.Is(err, errPacket) {
			t.Errorf("%x: %d bytes, %v", sent, len(got), err)
		}
	}
}

// The guard changes nothing that is within its bounds, however it arrives.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{pingresp, 0}, 10)
	f.Add(message([]byte("\x00\x01tpayload")), 3)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		const limit = 16
		g := newGuard(script{in: bytes.NewReader(sent)}, limit)
		g.maxMessage = 32
		buf := make([]byte, max(1, min(size, 64)))
		var got []byte
		for {
			n, err := g.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
			if n == 0 {
				t.Fatal("it read nothing, without an error")
			}
		}
		if len(got) > len(sent)+4 {
			t.Fatalf("%d bytes of %d", len(got), len(sent))
		}
	})
}
