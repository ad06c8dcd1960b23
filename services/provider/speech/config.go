package speech

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// NameCommand is the provider's name of a program.
const NameCommand = "command"

// The placeholders in the arguments of a program.
const (
	FilePlaceholder  = "{file}"  // of a recogniser: the path of the audio
	VoicePlaceholder = "{voice}" // of a synthesiser
)

// vendor is the base URL of OpenAI's own API.
const vendor = "https://api.openai.com/v1"

// Config of a transcriber or speaker: an API or a program. Zero fields mean the defaults.
type Config struct {
	Name  string // of the provider; required with an API
	Model string // required with an API

	Command []string // a program and its arguments, instead of an API

	BaseURL      string      // default OpenAI's
	APIKey       httpapi.Key // empty: none is sent
	KeyEnv       string      // the variable that the key belongs into, for messages
	Organization string      // OpenAI's, optional
	Project      string      // OpenAI's, optional

	Voice string // of a speaker; default alloy for an API, and none for a program

	// silence after which an answer of an API is abandoned; a local server may load the model first
	Stall time.Duration `default:"1m" min:"0"`
	// how long a program may take
	Wait       time.Duration `default:"1m" min:"0"`
	Retry      retry.Config
	HTTPClient *http.Client // optional; redirects are never followed
}

// defaultVoice is a voice that OpenAI's API and those like it have.
const defaultVoice = "alloy"

// WithDefaults replaces zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Filled(c)
	if len(c.Command) > 0 {
		c.Name, c.Model = NameCommand, filepath.Base(c.Command[0])
		return c
	}
	if c.BaseURL == "" {
		c.BaseURL = vendor
	}
	if c.Voice == "" {
		c.Voice = defaultVoice
	}
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{bounds.Check("", c), CheckVoice(c.Voice)}
	if len(c.Command) > 0 {
		return errors.Join(append(errs, CheckCommand(c.Command))...)
	}
	if c.Name == "" || c.Model == "" {
		errs = append(errs, errors.New("name or model is missing"))
	}
	return errors.Join(append(errs, httpapi.CheckURL(c.BaseURL, vendor, c.KeyEnv), c.APIKey.Validate())...)
}

// CheckCommand reports what is wrong with a program and its arguments.
func CheckCommand(command []string) error {
	if slices.ContainsFunc(command, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		return errors.New("command holds an argument with a NUL byte")
	}
	if len(command) > 0 && command[0] == "" {
		return errors.New("command[0] is empty, want the name of a program")
	}
	return nil
}

// voices is what a voice may be: it becomes part of an argument of a program.
var voices = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$`)

// CheckVoice reports a voice that is not a name; empty means the default.
func CheckVoice(voice string) error {
	if voice == "" || voices.MatchString(voice) {
		return nil
	}
	return fmt.Errorf("voice is %.80q, want 1 to 64 letters, digits, spaces and the characters . _ + -", voice)
}
