package webtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"testing"

	"github.com/nats-io/nats.go"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/provider/tail"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/test/speechtest"
	"skandha.dev/services/test/webtest"
)

// hears is a configuration with a recogniser.
func hears(t *testing.T, sentences ...string) string {
	t.Helper()
	command, err := json.Marshal(speechtest.Recogniser(t, sentences...))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("providers: {transcriber: {command: %s}}\n", command)
}

// film is what a camera sees in which all is of one colour.
func film(t *testing.T, colour string) string {
	t.Helper()
	return ffmpegtest.Make(t, "camera.mjpeg", "-f", "lavfi", "-i", "color="+colour+":size=320x240:rate=5:duration=1",
		"-pix_fmt", "yuvj420p", "-f", "mjpeg")
}

// listened waits until the microphone was open for the length of what is said.
const listened = `/ [3-9] s of/.test(text(".talk-status"))`

// The button works with the keyboard, what is said goes into the input field if the person wants that,
// and a recording is not lost when the bridge cannot have it transcribed.
func TestARecordingIsKeptUntilItIsTranscribed(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: hears(t, "what do you see", "what is two plus two"), Process: true})
	p := r.WithSenses(t, webtest.Senses{Hears: speechtest.Say(t, "what do you see")}, "kept")
	p.Expect(`/v1/audio/transcriptions|/v1/ws|ERR_CONNECTION_REFUSED`)
	p.Click(".composer-tools [aria-label='Send what I say']")
	p.Focus(".talk")
	p.Press(" ")
	p.Wait(listened)
	r.Kill()
	p.Press(" ")
	p.Wait(`text(".talk-status").includes("The bridge does not answer") && !seen(".lights")`)
	p.Shot("kept")
	r.Restart()
	p.Click(".talk-status .btn")
	p.Wait(`one("#input").value === "what do you see" && !all(".said").length`)
}

// Without a transcriber the page says what to set.
func TestWithoutATranscriberThePageSaysWhatToSet(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.WithSenses(t, webtest.Senses{}, "deaf")
	p.Expect(`404 .*/v1/audio/transcriptions`)
	p.Click(".talk")
	p.Wait(`text(".talk-status").includes("Listening 1 s")`)
	p.Press("Escape") // drops it, and cancels nothing
	p.Wait(`!seen(".talk-status") && !seen(".lights") && !text(".state-hint")`)
	p.Click(".talk")
	p.Wait(`text(".talk-status").includes("Listening 1 s")`)
	p.Click(".talk")
	p.Wait(`text(".talk-status").includes("no transcriber is configured: set providers.transcriber in the configuration file")`)
	p.Shot("deaf")
}

// colour says what is in the middle of a picture, as a model with vision would.
func colour(picture []byte) string {
	p, err := jpeg.Decode(bytes.NewReader(picture))
	if err != nil {
		return err.Error()
	}
	at := p.Bounds()
	r, g, b, _ := p.At(at.Dx()/2, at.Dy()/2).RGBA()
	for name, is := range map[string]bool{
		"red": r > 0xC000 && g < 0x4000 && b < 0x4000, "blue": b > 0xC000 && r < 0x4000 && g < 0x4000,
	} {
		if is && at.Dx() <= 640 {
			return name
		}
	}
	return fmt.Sprintf("%v of %x %x %x", at, r, g, b)
}

// The page's microphone asks what the page's camera sees: a person says it, a real recogniser hears it,
// the model looks through the shared camera, gets the picture over its API, and its answer is on the
// page.
func TestTheMicrophoneAsksWhatTheCameraSees(t *testing.T) {
	srv := openaitest.New(t)
	srv.Obey(scripted.By(func(message string) scripted.Reply {
		if message != "what do you see" {
			return scripted.Reply{Text: "I was asked " + message}
		}
		return scripted.Reply{Calls: []contract.ToolCall{{Tool: "camera:look", Args: json.RawMessage(`{}`)}}}
	}, func(r tail.Result) string {
		if len(r.Files) != 1 {
			return "I see nothing: " + r.Text
		}
		return "Everything is " + colour(r.Files[0].Data) + "."
	}))
	model, err := openai.New(openai.Config{BaseURL: srv.URL, APIKey: openaitest.Key, Model: openaitest.Model})
	if err != nil {
		t.Fatal(err)
	}
	r := webtest.Start(t, webtest.Options{
		Config: hears(t, "what do you see", "what is two plus two", "what time is it"), Model: model,
	})
	p := r.WithSenses(t, webtest.Senses{Hears: speechtest.Say(t, "what do you see"), Sees: film(t, "blue")}, "look")
	p.Click("[aria-label='Share camera']")
	p.Wait(`text(".camera").includes("can see this")`)
	p.Click(".talk")
	p.Wait(listened)
	p.Wait(`all(".light").length === 2`)
	p.Click(".talk")
	p.Wait(`text(".said").includes("what do you see")`)
	p.Wait(finished + ` === 1 && text(".transcript").includes("Everything is blue.")`)
	p.Shot("looked")
}

// A shared camera sends pictures to its session, under a red light, until the person stops or leaves.
func TestACameraIsSharedWithItsSessionAlone(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.WithSenses(t, webtest.Senses{Sees: film(t, "red")}, "seen")
	frames := make(chan *nats.Msg, 100)
	if _, err := r.Bus.Conn().ChanSubscribe("media.frame.*.*", frames); err != nil {
		t.Fatal(err)
	}
	if err := r.Bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	p.Click("[aria-label='Share camera']")
	frame := func(session string) {
		t.Helper()
		ctx := natstest.Context(t)
		for {
			select {
			case m := <-frames:
				if got := colour(m.Data); got != "red" {
					t.Errorf("%s is %s, %d bytes", m.Subject, got, len(m.Data))
				}
				if m.Subject == "media.frame.main."+session { // others came before
					return
				}
			case <-ctx.Done():
				t.Fatal("no picture came")
			}
		}
	}
	frame("seen")
	frame("seen")
	p.Wait(`seen(".light[data-what=camera]") && text(".camera").includes("can see this")`)
	for _, colours := range []string{"light", "dark"} {
		p.Prefer(colours, false)
		for _, f := range p.Audit() {
			t.Errorf("with %s colours: %+v", colours, f)
		}
		p.Shot("camera-" + colours)
	}
	p.Size(360, 740)
	p.Wait(`document.documentElement.scrollWidth <= 360`)
	p.Shot("camera-narrow")
	p.Size(1360, 860)
	p.Session("other")
	p.Wait(`!seen(".lights") && text(".camera").includes("because you are in another session") && !one(".camera-video")?.srcObject`)
	p.Click("[aria-label='Share camera']")
	frame("other")
	p.Click(".light-stop")
	p.Wait(`!seen(".lights") && !seen(".camera") && seen("[aria-label='Share camera']")`)

	// Somebody switches the listener off that watches the camera.
	ctx := natstest.Context(t)
	if err := senses.PutWatcher(ctx, r.Bus, "desk", &senses.Watcher{Agent: "main", Session: "other"}); err != nil {
		t.Fatal(err)
	}
	p.Click("[aria-label='Share camera']")
	p.Wait(`text(".camera").includes("can see this")`)
	p.Expect(`409 .*/camera$`)
	if _, err := senses.Turn(ctx, r.Bus, "desk", false, "ann"); err != nil {
		t.Fatal(err)
	}
	p.Wait(`!seen(".lights") && text(".camera").includes("because camera desk is off: switched off by ann") && !one(".camera-video")?.srcObject`)
}

// Without a camera or its permission the page says what to do.
func TestACameraThatCannotBeOpened(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "blind")
	p.Click("[aria-label='Share camera']")
	p.Wait(`/No camera was found|is blocked for this page/.test(text(".camera"))`)
	p.Click(".talk")
	p.Wait(`/No microphone was found|is blocked for this page/.test(text(".talk-status"))`)
	p.Wait(`!seen(".lights")`)
	p.Shot("blind")
}

// Answers are read aloud by the configured speaker, without code; the person stops it with Escape, which
// then cancels nothing.
func TestAnswersAreReadAloud(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: "providers: {speaker: {command: " + speechtest.Synthesiser(t) + "}}\n"})
	p := r.SignedIn(t, "aloud")
	webtest.Get[bool](p, `(window.played = 0, AudioBufferSourceNode.prototype.start = ((start) => function (...a) {
		played = this.buffer.duration; return start.apply(this, a);
	})(AudioBufferSourceNode.prototype.start), window.stopped = 0,
	AudioBufferSourceNode.prototype.stop = ((stop) => function (...a) { stopped++; return stop.apply(this, a); })(AudioBufferSourceNode.prototype.stop), true)`)
	p.Say("nothing of this is read")
	p.Wait(finished + ` === 1`)
	p.Click("[aria-label='Read answers aloud']")
	p.Say("this answer is long enough to be interrupted by somebody who has heard enough of it already")
	p.Wait(`played > 2 && stopped === 0`)
	p.Press("Escape")
	p.Wait(`stopped === 1 && !text(".state-hint")`)
}
