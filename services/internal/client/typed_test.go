package client_test

import (
	"reflect"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/client"
)

func TestWhatIsTypedIsSaidOrACommand(t *testing.T) {
	for _, c := range []struct {
		typed, say string
		command    *event.Command
	}{
		{"hello /help", "hello /help", nil},
		{" /etc is full", " /etc is full", nil},
		{"/help", "", &event.Command{Name: "help", Args: []string{}}},
		{"/replay  2\n", "", &event.Command{Name: "replay", Args: []string{"2"}}},
		{"/", "", &event.Command{Name: "help", Args: []string{}}},
		{"/ \n", "", &event.Command{Name: "help", Args: []string{}}},
		{"//etc is full", "/etc is full", nil},
		{"///", "//", nil},
		{"", "", nil},
	} {
		say, command := client.Typed(c.typed)
		if say != c.say || !reflect.DeepEqual(command, c.command) {
			t.Errorf("%q: %q, %+v; want %q, %+v", c.typed, say, command, c.say, c.command)
		}
	}
}
