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
)

// model is where Debian has PocketSphinx's English model.
const model = "/usr/share/pocketsphinx/model/en-us/en-us"

// Say returns a WAV file, 16 kHz and mono, in which the sentence is said after half a second.
func Say(t testing.TB, sentence string) string {
	t.Helper()
	for _, program := range []string{"espeak-ng", "ffmpeg"} {
		need(t, program)
	}
	dir := t.TempDir()
	said, out := filepath.Join(dir, "said.wav"), filepath.Join(dir, "speech.wav")
	run(t, "espeak-ng", "-s", "130", "-w", said, "--", sentence)
	run(t, "ffmpeg", "-loglevel", "error", "-i", said, "-af", "adelay=500:all=1,apad=pad_dur=0.5", "-ar", "16000", "-ac", "1", out)
	return out
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

// Picture returns a Motion JPEG file of one second in one colour, by a name that FFmpeg knows.
func Picture(t testing.TB, colour string) string {
	t.Helper()
	need(t, "ffmpeg")
	out := filepath.Join(t.TempDir(), "camera.mjpeg")
	run(t, "ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "color="+colour+":size=320x240:rate=5:duration=1",
		"-pix_fmt", "yuvj420p", "-f", "mjpeg", out)
	return out
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

func run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
