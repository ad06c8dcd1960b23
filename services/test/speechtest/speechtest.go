// Package speechtest has a voice and an ear for tests: eSpeak NG says a sentence, and PocketSphinx
// with its English model hears one of a few. Both are real programs; without them tests are skipped,
// or fail if SKANDHA_REQUIRE is "all".
package speechtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/ffmpegtest"
)

// model is where Debian has PocketSphinx's English model.
const model = "/usr/share/pocketsphinx/model/en-us/en-us"

// Say returns a WAV file, 16 kHz and mono, in which the sentence is said after half a second.
func Say(t testing.TB, sentence string) string {
	t.Helper()
	need(t, "espeak-ng")
	said := filepath.Join(t.TempDir(), "said.wav")
	if out, err := exec.CommandContext(t.Context(), "espeak-ng", "-s", "130", "-w", said, "--", sentence).CombinedOutput(); err != nil {
		t.Fatalf("espeak-ng: %v\n%s", err, out)
	}
	return ffmpegtest.Make(t, "speech.wav", "-i", said, "-af", "adelay=500:all=1,apad=pad_dur=0.5", "-ar", "16000", "-ac", "1")
}

// Recogniser returns the command of a recogniser that hears only these sentences, in lower case and
// without punctuation. It takes a WAV file in the place of {file}, and writes what it has heard.
func Recogniser(t testing.TB, sentences ...string) []string {
	t.Helper()
	need(t, "pocketsphinx_continuous")
	if _, err := os.Stat(model); err != nil {
		missing(t, "PocketSphinx's English model (Debian: pocketsphinx-en-us)")
	}
	grammar := filepath.Join(t.TempDir(), "sentences.gram")
	text := fmt.Sprintf("#JSGF V1.0;\ngrammar sentences;\npublic <sentence> = %s;\n", strings.Join(sentences, " | "))
	if err := os.WriteFile(grammar, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"pocketsphinx_continuous", "-infile", "{file}", "-jsgf", grammar, "-logfn", os.DevNull}
}

// Synthesiser returns the command of a synthesiser, as a list in YAML.
func Synthesiser(t testing.TB) string {
	t.Helper()
	need(t, "espeak-ng")
	return "[espeak-ng, --stdout]"
}

func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		missing(t, program)
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	why := "NOT TESTED: " + what + " is not installed"
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}
