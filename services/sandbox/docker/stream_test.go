package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func piece(kind byte, text string) string {
	header := make([]byte, 8)
	header[0] = kind
	binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
	return string(header) + text
}

func TestStdoutOfTheEnginesStream(t *testing.T) {
	long := strings.Repeat("0123456789", 10000)
	for _, c := range []struct {
		about, stream, want string
		err                 error
		says                string
	}{
		{about: "nothing"},
		{about: "pieces", stream: piece(1, "a") + piece(1, "") + piece(1, "bc"), want: "abc"},
		{about: "a long piece", stream: piece(1, long) + piece(1, "x"), want: long + "x"},
		{about: "errors between", stream: piece(2, "no") + piece(1, "a") + piece(2, long) + piece(1, "b"), want: "ab"},
		{about: "the end in a header", stream: piece(1, "a") + "\x01\x00", want: "a", err: io.ErrUnexpectedEOF},
		{about: "the end in a piece", stream: piece(1, "abc")[:9], want: "a"},
		{about: "the engine's word", stream: piece(1, "a") + piece(3, "it broke"), want: "a", says: "it broke"},
		{about: "garbage", stream: "HTTP/1.1 500", says: "invalid stream"},
	} {
		t.Run(c.about, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once": strings.NewReader(c.stream), "by the byte": iotest.OneByteReader(strings.NewReader(c.stream)),
			} {
				var got bytes.Buffer
				_, err := io.Copy(&got, &stdout{r: bufio.NewReader(r)})
				if got.String() != c.want {
					t.Errorf("%s: got %.20q, want %.20q", how, got.String(), c.want)
				}
				switch {
				case c.says != "":
					if err == nil || !strings.Contains(err.Error(), c.says) {
						t.Errorf("%s: ended with %v, want %q", how, err, c.says)
					}
				case !errors.Is(err, c.err):
					t.Errorf("%s: ended with %v, want %v", how, err, c.err)
				}
			}
		})
	}
}
