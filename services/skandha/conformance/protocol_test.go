package conformance

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestOperationsAreRead(t *testing.T) {
	for in, want := range map[string]string{
		"PUB a.b 5\r\nhello\r\n":                                  "PUB a.b  \"hello\"",
		"pub a.b r.1 5\r\nhello\r\n":                              "PUB a.b r.1 \"hello\"",
		"PUB\ta  0\r\n\r\n":                                       "PUB a  \"\"",
		"HPUB a r 22 27\r\nNATS/1.0\r\nX-A:  b \r\n\r\nhello\r\n": "HPUB a r \"hello\" X-A=b",
		"MSG a 9 5\r\nhello\r\n":                                  "MSG a  \"hello\"",
		"MSG a 9 r 5\r\nhello\r\n":                                "MSG a r \"hello\"",
		"HMSG a 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\n":              "HMSG a  \"\" Status=503",
		"SUB a.* q 1\r\n":                                         "SUB a.* q",
		"SUB a 1\r\n":                                             "SUB a ",
		"-ERR 'Parser Error'\r\n":                                 "-ERR Parser Error",
		"PING\r\n":                                                "PING",
	} {
		raw, o, err := readOp(bufio.NewReader(strings.NewReader(in)))
		got := o.verb
		switch {
		case o.carries():
			got += fmt.Sprintf(" %s %s %q", o.subject, o.reply, o.body)
			for k, v := range o.header {
				got += " " + k + "=" + v[0]
			}
		case o.verb == "SUB":
			got += " " + o.subject + " " + o.queue
		case o.verb == "-ERR":
			got += " " + o.text
		}
		if err != nil || got != want || string(raw) != in {
			t.Errorf("%q: got %s, %v; want %s; passed on as %q", in, got, err, want, raw)
		}
	}
}

func TestWhatMakesNoSenseIsPassedOnAsItCame(t *testing.T) {
	for _, in := range []string{
		"PUB a\r\n", "PUB a b c 5\r\n", "PUB a x\r\n", "PUB a -1\r\n", "HPUB a 9 5\r\n", "SUB a\r\n", "MSG a 5\r\n",
	} {
		r := bufio.NewReader(strings.NewReader(in + "PING\r\n"))
		raw, _, err := readOp(r)
		rest, _ := io.ReadAll(r)
		if err == nil || string(raw)+string(rest) != in+"PING\r\n" {
			t.Errorf("%q: passed on as %q and %q, %v", in, raw, rest, err)
		}
	}
	for _, in := range []string{"PUB a 5\r\nhel", "PING"} { // the connection ends in the middle
		raw, _, err := readOp(bufio.NewReader(strings.NewReader(in)))
		if err == nil || string(raw) != in {
			t.Errorf("%q: passed on as %q, %v", in, raw, err)
		}
	}
}
